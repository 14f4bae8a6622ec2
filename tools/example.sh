#!/usr/bin/env bash
# Builds examples/hello.c as a user would, against an installed library found by pkg-config, and
# lets a server and a client greet each other through a daemon. So does README's hello in Rust, as a
# project outside of this tree.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
name=example
. tools/background.sh

target=${CARGO_TARGET_DIR:-target}
tools/build-debug.sh
PREFIX=$work/usr BUILD=$target/debug WIRESHARK_PLUGINS=$work/plugins tools/install.sh >/dev/null
export PKG_CONFIG_PATH=$work/usr/lib/pkgconfig LD_LIBRARY_PATH=$work/usr/lib
export CLEARWAY_SOCKET=$work/control.sock
# Flags are words of their own.
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror examples/hello.c $(pkg-config --cflags --libs clearway) -o "$work/hello"

cat >"$work/clearway.toml" <<TOML
[[nic]]
name = "link"
driver = "memif"
role = "server"
socket = "$work/memif.sock"
addresses = ["10.0.0.1/24"]
TOML
"$work/usr/bin/clearway" daemon --config "$work/clearway.toml" 2>"$work/daemon.log" &
pids+=($!)
wait_for test -S "$CLEARWAY_SOCKET" || fail "the daemon did not start"
stdbuf -oL "$work/hello" server >"$work/server.log" 2>&1 &
pids+=($!)
wait_for grep -q listening "$work/server.log" || fail "the server did not start"
answer=$(timeout 10 "$work/hello" client 10.0.0.1 2>"$work/client.log") || fail "the client failed"
[ "$answer" = "hello, Clearway" ] || fail "the client got: $answer"
echo "example: hello.c, built with pkg-config, got: $answer"

# The same as examples/README.md builds it, against the library in this tree.
line=$(grep '^cc .*target/release' examples/README.md |
    sed "s|target/release|$target/debug|; s|-o hello|-o '$work/of-tree'|")
eval "$line"
answer=$(timeout 10 env -u LD_LIBRARY_PATH "$work/of-tree" client 10.0.0.1 2>"$work/client.log") ||
    fail "the client of the tree failed"
[ "$answer" = "hello, Clearway" ] || fail "the client of the tree got: $answer"
echo "example: hello.c, built as examples/README.md says, got: $answer"

# README's hello in Rust, in a project of its own beside this tree, with README's line for Cargo.
block() {
    awk -v fence="^\`\`\`$1\$" '
        $0 ~ fence { inside = 1; next }
        /^```$/ && inside { exit }
        inside' README.md
}
mkdir -p "$work/own/src"
ln -s "$PWD" "$work/clearway"
{ printf '[package]\nname = "own"\nedition = "2021"\n\n'; block toml; } >"$work/own/Cargo.toml"
{
    echo 'use clearway_client::{Channel, Options};'
    echo 'fn main() -> Result<(), Box<dyn std::error::Error>> {'
    block rust | sed 's/10\.0\.0\.2/10.0.0.1/'
    echo 'Ok(()) }'
} >"$work/own/src/main.rs"
# What this tree is built from is here; nothing is fetched.
cp Cargo.lock "$work/own/"
tools/cargo.sh build --quiet --offline --manifest-path "$work/own/Cargo.toml" \
    --target-dir "$target/own" 2>"$work/own.log" ||
    fail "the project with README's line for Cargo does not build"
answer=$(timeout 10 "$target/own/debug/own" 2>"$work/own.log") || fail "README's hello failed"
[ "$answer" = "hello, Clearway" ] || fail "README's hello got: $answer"
echo "example: README's hello in Rust, a project of its own, got: $answer"

# The event loop, beside it on the same host: it is connected to by Clearway and by TCP.
kill "${pids[1]}"
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror examples/epoll.c $(pkg-config --cflags --libs clearway) -o "$work/epoll"
stdbuf -oL "$work/epoll" 0 >"$work/epoll.log" 2>&1 &
pids+=($!)
wait_for grep -q listening "$work/epoll.log" || fail "the event loop did not start"
tcp_port=$(sed -n 's/.*TCP port //p' "$work/epoll.log")
answer=$(timeout 10 "$work/hello" client 10.0.0.1 2>"$work/client.log") || fail "the client failed"
[ "$answer" = Clearway ] || fail "the event loop sent back: $answer"
exec 3<>"/dev/tcp/127.0.0.1/$tcp_port"
echo "by TCP" >&3
read -r -t 10 answer <&3 && [ "$answer" = "by TCP" ] ||
    fail "the event loop sent back by TCP: $answer"
echo "example: epoll.c sends back what comes by Clearway and by TCP"
