#!/usr/bin/env bash
# Plants bugs in the parts of Clearway that are named, and says which of them no test sees; fails if
# one was missed. tools/mutants does it; cargo-mutants knows the bugs.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/rust-path.sh
command -v cargo-mutants >/dev/null || cargo install --quiet --locked cargo-mutants
CARGO_TARGET_DIR=target/mutants/tool cargo build --quiet --release \
    --manifest-path tools/mutants/Cargo.toml
exec target/mutants/tool/release/clearway-mutants "$@"
