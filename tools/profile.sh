#!/usr/bin/env bash
# Writes the record of which code runs often for the compiler at hand (profile/README.md): builds
# the workspace so that it counts, has it work, and puts together what it has counted. Needs root,
# for veth pairs, and about ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/rust-path.sh
. tools/compiler.sh

[ "$(id -u)" = 0 ] || { echo "profile: needs root, for veth pairs" >&2; exit 1; }
merge=$(profdata_of_compiler) ||
    {
        echo "profile: there is no llvm-profdata of LLVM $(llvm_of_compiler): rustup component" \
            "add llvm-tools, or Debian's llvm-$(llvm_of_compiler)" >&2
        exit 1
    }
record=$(record_of_compiler)
# Not the directory of other builds, which would all begin anew.
build=$PWD/target/profile/counting
counts=$PWD/target/profile/counts
rm -rf "$counts"
mkdir -p "$counts"

unset RUSTFLAGS # cargo would take these instead
CARGO_TARGET_DIR=$build cargo build --release --workspace \
    --config "build.rustflags = ['-Cprofile-generate=$counts']"
tools/bench-app.sh "$build/release"
rm -f "$counts"/* # what macros have counted as they were compiled with

# What a process has counted is in a file of its own once it has ended. Daemons that have confined
# themselves cannot write theirs, and say so; the engines of the other layouts do.
export LLVM_PROFILE_FILE=$counts/%p.profraw
said=$PWD/target/profile/said
work() {
    echo "profile: clearway $*"
    "$build/release/clearway" "$@" --runs 2 >"$said" 2>&1 || { cat "$said" >&2; exit 1; }
}
bench() { work bench "$@" --seconds 0.2; }
stream="stream --size 32768 --window 8"
for layout in unpinned hosts paired embedded; do
    bench rtt --wire memif --layout "$layout"
    bench rate --wire memif --window 32 --layout "$layout"
    bench $stream --wire memif --layout "$layout"
done
bench rtt --wire local --layout paired
for wire in veth udp; do
    bench rtt --wire "$wire"
    bench $stream --wire "$wire"
done
for what in rtt "$stream"; do
    for wire in memif veth; do
        bench $what --wire "$wire" --tcp --layout paired
    done
done
bench ops --only read,reads,scan,calls,streams,large,indirect,swaps
bench vif
work demo --tcp --body 64,8192 --connections 16

# Those that were killed have not written all. What has not run ten thousand times, setting up for
# the most part, is left to the compiler as it is: to it what it has a record of, and hardly ran, is
# not worth being fast.
"$merge" merge --sparse --text --failure-mode=all -o "$counts/all.txt" "$counts"/*.profraw
awk -v RS= -v ORS='\n\n' -F'\n' '
    NR == 1 { print ":ir" }
    {
        sub(/^# IR level[^\n]*\n:ir\n/, "")
        most = 0
        for (at = 1; at <= NF && $at != "# Counter Values:"; at++);
        for (at++; at <= NF && $at ~ /^[0-9]+$/; at++) if ($at + 0 > most) most = $at + 0
        if (most >= 10000) print
    }' "$counts/all.txt" >"$counts/often.txt"
"$merge" merge -o "$record" "$counts/often.txt"
rm -rf "$counts"
echo "profile: $record is written; \`make bench-instructions\` has what it brings"
