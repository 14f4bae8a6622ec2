#!/usr/bin/env bash
# Tests what is behind a feature: frames that are not checked, which is measured only and never
# ships; and the dpdk driver, where the system has libdpdk.
set -euo pipefail
cd "$(dirname "$0")/.."

features=clearway-bench/unchecked
has_dpdk=
if pkg-config --atleast-version=22.11 libdpdk; then
    has_dpdk=1
    features+=,clearway-cli/dpdk
else
    echo "skipped: the tests of the dpdk driver need libdpdk 22.11 or newer" \
        "(Debian package libdpdk-dev)"
fi

# The whole workspace, so that dependencies are as `cargo test --workspace` has built them. Left out
# is what has no test of this, and would be compiled for nothing.
selection=(--workspace --features "$features")
for crate in control daemon embed lab sim tcp; do selection+=(--exclude "clearway-$crate"); done
tools/cargo.sh test "${selection[@]}" --lib -- --show-output frames vif dpdk
[ -z "$has_dpdk" ] || tools/cargo.sh test "${selection[@]}" --test dpdk -- --show-output
