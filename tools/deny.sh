#!/usr/bin/env bash
# Checks what Clearway depends on against deny.toml. cargo-deny does it all, if it is there; it is
# not installed for this, since building it takes many minutes and advisories need a network. A test
# does the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/rust-path.sh

cargo test --quiet --workspace --test dependencies
if command -v cargo-deny >/dev/null; then
    cargo deny --workspace check
else
    echo "deny: no cargo-deny here (cargo install --locked cargo-deny);" \
        "not checked: advisories, yanked versions"
fi
