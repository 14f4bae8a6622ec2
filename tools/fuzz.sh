#!/usr/bin/env bash
# Runs every fuzz target for $1 seconds. cargo-fuzz needs a compiler that takes -Z flags: the
# nightly one if there is one, else the stable one told to.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/rust-path.sh
seconds=${1:?seconds per target}

command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz
toolchain=()
if rustup toolchain list 2>/dev/null | grep '^nightly' >/dev/null; then
    toolchain=(+nightly)
else
    export RUSTC_BOOTSTRAP=1
fi

# A loop over what a command says goes on without it if it fails.
targets=$(cargo "${toolchain[@]}" fuzz list)
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
for target in $targets; do
    mkdir "$corpus/$target"
    echo "fuzz: $target for $seconds s"
    # New inputs go to a directory of their own; the seeds in the repository stay as they are.
    if ! cargo "${toolchain[@]}" fuzz run "$target" "$corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
        >"$corpus/log" 2>&1; then
        tail -n 100 "$corpus/log"
        echo "fuzz: $target FAILED"
        exit 1
    fi
    grep '^Done' "$corpus/log"
done
