#!/usr/bin/env bash
# Runs the blocks of docs/first-hour.md from start to end in one shell, as a newcomer would. What is
# different: what `cargo build` makes is installed to a directory of its own, and names are those of
# nobody else; `top` has a terminal, at which somebody presses "q". Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    echo "first-hour: skipped: needs root to make network namespaces"
    exit 0
fi
tools/build-debug.sh
home=/tmp/home
build=$(realpath "${CARGO_TARGET_DIR:-target}")/debug
make_install="PREFIX=\$PREFIX BUILD=$build tools/install.sh"
blocks=$(awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' docs/first-hour.md |
    sed -e 's|^PREFIX=.*|PREFIX=/tmp/usr|' -e "s|^make install.*|$make_install|" \
        -e 's|^clearway top .*|at_terminal "&"|' \
        -e 's|^make uninstall|tools/uninstall.sh|' -e '/^export PATH/s|$|; export PREFIX|')

# Runs top until it shows something.
at_terminal='at_terminal() {
    { until grep -aq "LINKS UP" top.out; do sleep 0.1; done; printf q; } |
        script -qefc "$1" top.out
}'

# A network, a /run for its namespaces and a /tmp of their own. Wireshark's plugins are then those
# of $HOME. This tree stays where it is, also if that is below /tmp.
mounts="mount --bind '$PWD' /mnt; mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /tmp
    mkdir -p '$PWD'; mount --bind /mnt '$PWD'; cd '$PWD'"
status=0
output=$(HOME=$home WIRESHARK_PLUGINS=$home/.local/lib/wireshark/plugins timeout 120 \
    unshare --mount --net --pid --fork --mount-proc \
    bash -euo pipefail -c "$at_terminal; $mounts; mkdir $home; $blocks" \
    2>&1) || status=$?
fail() {
    printf '%s\nfirst-hour: %s\n' "$output" "$*" >&2
    exit 1
}
[ "$status" = 0 ] || fail "the last command failed ($status)"
for words in "3 received" "hello, Clearway" "there: engine cable/0, driver" "LINKS UP" \
    "p99.9 µs" "100000 bytes from 10.1.0.1" \
    "taken over: [policy]" "syn: to port 4000" "challenge" "syn-ack" "message 0 (8 bytes)"; do
    [[ $output == *"$words"* ]] || fail "nothing says \"$words\""
done
# What tshark says of the capture is the last.
[[ ${output##*"taken over"} != *[Mm]alformed* ]] || fail "something is malformed"
echo "first-hour: docs/first-hour.md runs as written"
