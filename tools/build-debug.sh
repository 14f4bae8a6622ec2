#!/usr/bin/env bash
# Builds everything with debug checks: programs, libraries and examples are in target/debug then.
# After `cargo test --workspace` nothing is left to compile. Other selections of packages (`-p`)
# give dependencies other features, so that most of it would be compiled anew.
set -euo pipefail
cd "$(dirname "$0")/.."
exec tools/cargo.sh build --quiet --workspace --all-targets
