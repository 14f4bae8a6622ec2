#!/usr/bin/env bash
# Tests the dpdk driver, which is a feature because it needs the system's libdpdk. Says so where
# that is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! pkg-config --atleast-version=22.11 libdpdk; then
    echo "skipped: the tests of the dpdk driver need libdpdk 22.11 or newer (Debian package libdpdk-dev)"
    exit 0
fi
tools/cargo.sh test -p clearway-nic --features dpdk --lib dpdk
tools/cargo.sh test -p clearway-nic --features dpdk --test dpdk
tools/cargo.sh test -p clearway-cli --features dpdk --test dpdk
