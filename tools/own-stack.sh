#!/usr/bin/env bash
# An unprivileged program with a TCP/IP stack of its own (crates/client/examples/own-stack.rs) is a
# machine on the LAN: the Linux kernels of another network namespace, and of the daemon's own, ping
# it and speak TCP with it. Needs root, for the namespaces and the veth pair between them; the
# program itself runs as nobody.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    echo "own-stack: skipped: needs root to make network namespaces"
    exit 0
fi
work=$(mktemp -d)
here=own-stack-$$-here
there=own-stack-$$-there
name=own-stack
. tools/background.sh
clean_more() {
    ip netns del "$here" 2>/dev/null || true
    ip netns del "$there" 2>/dev/null || true
}

target=${CARGO_TARGET_DIR:-target}
tools/build-debug.sh
# nobody may not look into a home directory.
chmod 755 "$work"
install -m 755 "$target/debug/examples/own-stack" "$work/own-stack"

ip netns add "$here"
ip netns add "$there"
ip -n "$here" link add cw0 type veth peer name cw0 netns "$there"
ip -n "$here" addr add 10.79.0.1/24 dev cw0
ip -n "$there" addr add 10.79.0.2/24 dev cw0
for space in "$here" "$there"; do ip -n "$space" link set cw0 up; done

cat >"$work/clearway.toml" <<TOML
[control]
socket = "$work/clearway.sock"
[policy]
users = ["nobody"]
[[policy.vif]]
users = ["nobody"]
own_addresses = ["10.79.0.50/32"]
copies = true
[[nic]]
interface = "cw0"
TOML
ip netns exec "$here" \
    "$target/debug/clearway" daemon --config "$work/clearway.toml" 2>"$work/daemon.log" &
pids+=($!)
wait_for test -S "$work/clearway.sock" || fail "the daemon did not start"
# Frames of a kernel on the same machine carry no TCP checksums: it leaves those to a NIC.
setpriv --reuid nobody --regid nogroup --clear-groups env CLEARWAY_SOCKET="$work/clearway.sock" \
    stdbuf -oL "$work/own-stack" own 10.79.0.50/24 --believe-checksums >"$work/stack.log" 2>&1 &
pids+=($!)
wait_for grep -q "is .* here" "$work/stack.log" || fail "the program did not get its interface"
cat "$work/stack.log"

for space in "$there" "$here"; do
    ip netns exec "$space" ping -q -c 3 -i 0.2 -W 5 10.79.0.50 || fail "no answer to ping in $space"
    page=$(ip netns exec "$space" timeout 10 bash -c \
        'exec 3<>/dev/tcp/10.79.0.50/80; printf "GET / HTTP/1.0\r\n\r\n" >&3; cat <&3') ||
        fail "no page in $space"
    echo "own-stack: the kernel of $space got: $(head -n 1 <<<"$page")"
    echo=$(ip netns exec "$space" timeout 10 bash -c \
        'exec 3<>/dev/tcp/10.79.0.50/7; echo "hello, own stack" >&3; head -n 1 <&3') ||
        fail "no echo in $space"
    [ "$echo" = "hello, own stack" ] || fail "the echo in $space was: $echo"
    echo "own-stack: and its own words back: $echo"
done
"$target/debug/clearway" vif list --socket "$work/clearway.sock"
