#!/usr/bin/env bash
# Runs `cargo $@` (miri) with the nightly toolchain and installs the component that it needs.
set -euo pipefail
. "$(dirname "$0")/rust-path.sh"

if ! rustup toolchain list 2>/dev/null | grep '^nightly' >/dev/null; then
    echo "nightly: no nightly toolchain (rustup toolchain install nightly); skipped: cargo $*"
    exit 0
fi
if ! rustup +nightly component list --installed 2>/dev/null | grep '^miri' >/dev/null; then
    if ! rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1; then
        echo "nightly: the component miri cannot be installed here; skipped: cargo $*"
        exit 0
    fi
fi
export MIRIFLAGS=-Zmiri-disable-isolation
exec cargo +nightly "$@"
