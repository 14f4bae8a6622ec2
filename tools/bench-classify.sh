#!/usr/bin/env bash
# Builds the librte_acl contender if libdpdk is there, and runs `clearway bench classify` over the
# rule files in the directory $1. Plots go to docs/classify.
set -euo pipefail
cd "$(dirname "$0")/.."
sets=${1:?a directory of rule files}
target=${CARGO_TARGET_DIR:-target}
contender=()
if pkg-config --exists libdpdk 2>/dev/null; then
    mkdir -p "$target"
    # shellcheck disable=SC2046
    cc -O3 -march=native -w -o "$target/aclbench" bench/classify/aclbench.c \
        $(pkg-config --cflags --libs libdpdk)
    contender=(--aclbench "$target/aclbench")
else
    echo "bench-classify: no libdpdk (Debian: libdpdk-dev), so librte_acl is not measured" >&2
fi

# Sets of sizes that the directory has no file of are generated.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for shape in acl1 fw1 ipc1; do
    for size in 100:100 1000:1k 5000:5k 10000:10k; do
        "$target/release/clearway" bench classify --generate "$shape" --count "${size%:*}" \
            >"$work/${shape}_${size#*:}"
    done
done
cp "$sets"/*_* "$work"

"$target/release/clearway" bench classify --sets "$work" "${contender[@]}" --plots docs/classify
"$target/release/clearway" bench classify --exact 100000 --patterns 1000
