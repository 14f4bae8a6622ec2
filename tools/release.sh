#!/usr/bin/env bash
# Builds the workspace as it is released: with the record of which code runs often that is in
# profile/ for this compiler (profile/README.md). For another compiler it says so, and builds
# without.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/rust-path.sh
. tools/compiler.sh

record=$(record_of_compiler)
flags=()
if [ -n "${RUSTFLAGS:-}" ]; then
    echo "release: RUSTFLAGS is set, so the record in profile/ is not used"
elif [ -e "$record" ]; then
    # Cargo builds again if a flag is another one, but not if a file is.
    copy=${CARGO_TARGET_DIR:-target}/profile/$(sha256sum "$record" | cut -c 1-16).profdata
    mkdir -p "$(dirname "$copy")"
    [ -e "$copy" ] || cp "$record" "$copy" # for a file that is newer, cargo builds all again
    flags=(--config "build.rustflags = ['-Cprofile-use=$(realpath "$copy")']")
else
    echo "release: $record is missing, so small messages take up to a quarter longer;" \
        "\`make profile\` writes it (profile/README.md)"
fi
# All of the workspace: what is built beside a crate changes the names of its functions, by which
# the record knows them.
exec cargo build --release --workspace "${flags[@]}" "$@"
