#!/usr/bin/env bash
# Builds the librte_acl contender if libdpdk is there, and runs `clearway bench classify` over the
# rule files in the directory $1. Plots go to docs/classify.
set -euo pipefail
cd "$(dirname "$0")/.."
sets=${1:?a directory of rule files}
contender=()
if pkg-config --exists libdpdk 2>/dev/null; then
    mkdir -p target
    # shellcheck disable=SC2046
    cc -O3 -march=native -w -o target/aclbench bench/classify/aclbench.c \
        $(pkg-config --cflags --libs libdpdk)
    contender=(--aclbench target/aclbench)
else
    echo "bench-classify: no libdpdk (Debian: libdpdk-dev), so librte_acl is not measured" >&2
fi
target/release/clearway bench classify --sets "$sets" "${contender[@]}" --plots docs/classify
target/release/clearway bench classify --exact 100000 --patterns 1000
