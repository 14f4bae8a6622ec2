#!/usr/bin/env bash
# Each package of `make packages` is installed into a clean Debian 12, two daemons of it are started
# and see each other, a C program is built with the library, and all goes away again; and the
# container's files run by themselves. Needs root, mmdebstrap and a Debian mirror; takes some
# minutes, and so is not a part of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
# What is mounted here goes away with this process.
[ -n "${CLEARWAY_TEST_PACKAGES:-}" ] || CLEARWAY_TEST_PACKAGES=1 exec unshare --mount "$0" "$@"
packages=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages
work=$(mktemp -d)
name=test-packages
. tools/background.sh
. tools/clean-root.sh

# host ROOT ROLE NUMBER: starts a daemon.
host() {
    local root=$1 role=$2 address=10.0.0.$3
    cat >"$root/run/clearway/$role.toml" <<TOML
[control]
socket = "/run/clearway/$role.sock"
[[nic]]
name = "link"
driver = "memif"
role = "$role"
socket = "/run/clearway/memif.sock"
addresses = ["$address/24"]
TOML
    become "$root" /usr/bin/clearway daemon --config "/run/clearway/$role.toml" \
        2>"$work/$role.log" &
    pids+=($!)
    wait_for test -S "$root/run/clearway/$role.sock" || fail "the daemon of the $role did not start"
}

# runs ROOT: two daemons there see each other, and neither stays root.
runs() {
    local root=$1 user
    mkdir -p "$root/run/clearway"
    pids=()
    host "$root" server 1
    host "$root" client 2
    answers() {
        in_root "$root" /usr/bin/clearway ping --count 1 --socket /run/clearway/client.sock 10.0.0.1
    }
    wait_for answers >"$work/ping" || fail "no answer to a ping"
    say "$(head -n 1 "$work/ping")"
    user=$(stat -c %u "/proc/${pids[0]}")
    [ "$user" = "$(in_root "$root" /usr/bin/id -u clearway 2>/dev/null || echo 997)" ] ||
        fail "the daemon runs as user $user"
    if [ "${2:-}" = hello ]; then hello "$root"; fi
    # An app may have ended by itself, since its daemon has.
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    pids=()
}

# hello ROOT: examples/hello.c, built there, through the server's daemon.
hello() {
    local root=$1 answer
    in_root "$root" sh -c 'cc /usr/share/doc/clearway/examples/hello.c \
        $(pkg-config --cflags --libs clearway) -o /tmp/hello'
    become "$root" env CLEARWAY_SOCKET=/run/clearway/server.sock stdbuf -oL /tmp/hello server \
        >"$work/hello.log" 2>&1 &
    pids+=($!)
    wait_for grep -q listening "$work/hello.log" || fail "hello does not listen"
    answer=$(in_root "$root" env CLEARWAY_SOCKET=/run/clearway/client.sock \
        timeout 10 /tmp/hello client 10.0.0.1)
    [ "$answer" = "hello, Clearway" ] || fail "hello said: $answer"
    say "hello.c, built against the package, got: $answer"
}

# nothing_left ROOT
nothing_left() {
    local left
    left=$(find "$1/usr" "$1/lib" -name '*clearway*' ! -path '*/dpkg/*')
    [ -z "$left" ] || fail "left behind: $left"
}

test_debs() {
    local root=$work/debs
    clean "$root"
    cp "$packages"/*.deb "$root/tmp/"
    # As far as its dependencies go: nothing else is there yet.
    in_root "$root" apt-get update -qq
    in_root "$root" sh -c 'apt-get install -y -qq --no-install-recommends \
        /tmp/clearway_*.deb /tmp/libclearway0_*.deb' \
        >"$work/apt.log" 2>&1 || fail "apt-get cannot install the packages"
    runs "$root"
    in_root "$root" sh -c 'apt-get install -y -qq --no-install-recommends \
        /tmp/libclearway-dev_*.deb gcc libc6-dev pkg-config' \
        >"$work/apt.log" 2>&1 || fail "apt-get cannot install libclearway-dev"
    runs "$root" hello
    in_root "$root" apt-get purge -y -qq clearway libclearway0 libclearway-dev >"$work/apt.log" 2>&1
    nothing_left "$root"
    say "the .deb packages were installed, used and removed"
}

# Into a Debian, since no other distribution is at hand: rpm knows nothing of what Debian's packages
# provide, and is told to believe that it is there.
test_rpms() {
    local root=$work/rpms
    clean "$root"
    in_root "$root" apt-get update -qq
    in_root "$root" apt-get install -y -qq --no-install-recommends rpm >"$work/apt.log" 2>&1 ||
        fail "no rpm"
    cp "$packages"/*.rpm "$root/tmp/"
    in_root "$root" sh -c 'rpm --install --nodeps /tmp/*.rpm' >"$work/rpm.log" 2>&1 ||
        fail "rpm cannot install the packages"
    runs "$root"
    in_root "$root" rpm --erase clearway-devel clearway-libs clearway >"$work/rpm.log" 2>&1 ||
        fail "rpm cannot remove them"
    nothing_left "$root"
    say "the .rpm packages were installed, used and removed"
}

test_container() {
    local root=$work/container
    mkdir "$root"
    tar -C "$root" -xf "$packages/clearway-container.tar.gz"
    # What every container has from whatever runs it.
    mkdir "$root/proc" "$root/dev"
    mount -t proc proc "$root/proc"
    mknod -m 666 "$root/dev/null" c 1 3
    runs "$root"
    say "the container's $(find "$root" -xdev -type f ! -path '*/run/*' | wc -l) files run by" \
        "themselves"
}

test_container
test_debs
test_rpms
