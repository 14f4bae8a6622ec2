#!/usr/bin/env bash
# All tests, and after them a list of what was skipped, and why. Whatever skips prints a line for
# that, which begins with `skipped: `.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

{
    tools/cargo.sh test --workspace -- --show-output
    tools/test-dpdk.sh
    tools/test-install.sh
    tools/example.sh
    tools/first-hour.sh
    tools/own-stack.sh
} 2>&1 | tee "$log"

# Before what a test has printed stands `---- NAME stdout ----`.
awk '/^---- .* stdout ----$/ { test = $2 ": " }
    /^test result: / { test = "" }
    /^([a-z-]+: )?skipped: / { sub(/skipped: /, ""); print "  " test $0; count++ }
    END { print count + 0, "skipped" }' "$log"
