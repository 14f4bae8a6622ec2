#!/usr/bin/env bash
# All tests, and after them what has failed, and a list of what was skipped, and why. Whatever skips
# prints a line for that, which begins with `skipped: `.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'summarise; rm -f "$log"' EXIT

# In what the test runner prints, the output of a test follows `---- NAME stdout ----`, and such
# outputs follow `successes:` or `failures:`.
summarise() {
    awk '
        /^(successes|failures):$/ { part = $1 }
        /^test result: / { part = test = "" }
        /^---- .* stdout ----$/ { test = $2 ": " }
        part == "failures:" { failures = failures $0 "\n" }
        /^([a-z-]+: )?skipped: / { sub(/skipped: /, ""); skips[count++] = test $0 }
        END {
            if (failures) printf "what has failed:\n%s", failures
            for (at = 0; at < count; at++) print "  " skips[at]
            print count + 0, "skipped"
        }' "$log"
}

run_all() {
    tools/cargo.sh test --workspace --no-fail-fast -- --show-output
    tools/test-install.sh
    tools/example.sh
    tools/first-hour.sh
    tools/own-stack.sh
    tools/test-features.sh
}

# What tests print that pass is kept for their skips only.
end='^failures:$\|^test result: '
run_all 2>&1 | tee "$log" | sed -u "/^successes:\$/,/$end/ { /$end/! d }"
