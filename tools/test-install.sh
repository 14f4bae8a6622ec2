#!/usr/bin/env bash
# What `make install` puts somewhere is complete, is found, and goes away again without a trace:
# once below a DESTDIR, as who makes a package wants it, and once below a prefix that others use
# too.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
name=test-install
. tools/background.sh

target=${CARGO_TARGET_DIR:-target}
tools/build-debug.sh
export BUILD=$target/debug
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

there() { [ -e "$1" ] || fail "$1 is not there"; }

# complete ROOT LIBDIR PLUGINS
complete() {
    local file sections
    for file in bin/clearway bin/clearwayd lib/systemd/system/clearway.service \
        lib/sysusers.d/clearway.conf include/clearway.h \
        share/clearway/{clearway.toml,clearway.lua,grafana.json} \
        share/man/man{1/clearway.1,1/clearway-ping.1,8/clearwayd.8} \
        share/bash-completion/completions/clearway \
        share/doc/clearway/{README.md,LICENSE,docs/wire.md,examples/hello.c}; do
        there "$1/$file"
    done
    for file in libclearway.{a,so,"so.${version%%.*}","so.$version"} pkgconfig/clearway.pc; do
        there "$2/$file"
    done
    there "$3/clearway.lua"
    sections=$(readelf -SW "$1/bin/clearway" "$1/bin/clearwayd" "$2/libclearway.so")
    [[ ! $sections =~ \.debug_(info|line) ]] || fail "what is installed is not stripped"
    ! grep -rn '@[a-z]*@' "$1/lib/systemd" "$2/pkgconfig" || fail "a path has not been filled in"
}

# builds_hello FILE: with the library that pkg-config finds.
builds_hello() {
    # Flags are words of their own.
    # shellcheck disable=SC2046
    cc -Wall -Wextra -Werror "$1" $(pkg-config --cflags --libs clearway) -o "$work/hello"
    [[ $("$work/hello" 2>&1) == usage* ]] || fail "hello.c does not start"
}

test_destdir() {
    local root=$work/root plugins=/usr/lib/multi/wireshark/plugins
    export DESTDIR=$root PREFIX=/usr LIBDIR=/usr/lib/multi WIRESHARK_PLUGINS=$plugins
    tools/install.sh
    complete "$root/usr" "$root$LIBDIR" "$root$plugins"
    grep -q "=/usr/bin/clearway" "$root/usr/lib/systemd/system/clearway.service" ||
        fail "DESTDIR is in the unit"
    PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$root$LIBDIR/pkgconfig \
        LD_LIBRARY_PATH=$root$LIBDIR \
        builds_hello "$root/usr/share/doc/clearway/examples/hello.c"
    tools/uninstall.sh
    [ ! -e "$root" ] || [ -z "$(find "$root" -mindepth 1)" ] ||
        fail "left below DESTDIR: $(find "$root")"
    unset DESTDIR PREFIX LIBDIR WIRESHARK_PLUGINS
}

test_prefix() {
    export PREFIX=$work/usr WIRESHARK_PLUGINS=$work/plugins
    mkdir -p "$PREFIX/lib" "$PREFIX/include"
    touch "$PREFIX/lib/of-others"
    find "$work/usr" | sort >"$work/before"
    tools/install.sh >"$work/install.log"
    grep -q "LD_LIBRARY_PATH=$PREFIX/lib" "$work/install.log" ||
        fail "nothing said about the library's place"
    # Of another version, a file that is no more.
    touch "$PREFIX/lib/libclearway.so.0.0.9"
    echo "$PREFIX/lib/libclearway.so.0.0.9" >>"$PREFIX/share/clearway/installed"
    tools/install.sh >"$work/install.log"
    [ ! -e "$PREFIX/lib/libclearway.so.0.0.9" ] || fail "an earlier version's file is left"
    complete "$PREFIX" "$PREFIX/lib" "$WIRESHARK_PLUGINS"
    PKG_CONFIG_PATH=$PREFIX/lib/pkgconfig LD_LIBRARY_PATH=$PREFIX/lib \
        builds_hello "$PREFIX/share/doc/clearway/examples/hello.c"
    "$PREFIX/bin/clearway" --version | grep -q "$version" || fail "the command does not start"
    tools/uninstall.sh
    find "$work/usr" | sort | diff "$work/before" - ||
        fail "something is left, or others' files are gone"
    [ ! -e "$WIRESHARK_PLUGINS" ] || fail "the dissector is left"
    unset PREFIX WIRESHARK_PLUGINS
}

# Below /usr/local, as root: ldconfig is run, and programs find the library without being told. All
# of it happens in a mount namespace, with a /usr/local and an /etc of its own.
test_linker() {
    if [ "$(id -u)" != 0 ]; then
        echo "$name: skipped: needs root to install for everybody"
        return 0
    fi
    mkdir "$work/etc"
    WIRESHARK_PLUGINS=$work/plugins unshare --mount bash -euo pipefail -c '
        mount -t tmpfs none /usr/local
        mount -t tmpfs none "$1/etc"
        mkdir /usr/local/lib "$1/etc/upper" "$1/etc/work"
        mount -t overlay none -o "lowerdir=/etc,upperdir=$1/etc/upper,workdir=$1/etc/work" /etc
        tools/install.sh
        # Flags are words of their own.
        cc examples/hello.c $(env -u PKG_CONFIG_PATH pkg-config --cflags --libs clearway) \
            -o "$1/everybodys"
        [[ $(env -u LD_LIBRARY_PATH "$1/everybodys" 2>&1) == usage* ]]
        tools/uninstall.sh
        ! ldconfig -p | grep libclearway' bash "$work" >"$work/linker.log" 2>&1 ||
        fail "the library below /usr/local is not found, or is after it was removed"
    ! grep -q LD_LIBRARY_PATH "$work/linker.log" || fail "it says what nobody has to do"
}

# tshark looks where the dissector was put, without being told of it.
test_dissector() {
    local found
    export HOME=$work/home PREFIX=$work/home/.local
    mkdir -p "$HOME"
    WIRESHARK_PLUGINS=$(tshark -G folders 2>/dev/null |
        sed -n 's/^Personal Lua Plugins:[[:space:]]*//p')
    export WIRESHARK_PLUGINS
    tools/install.sh >/dev/null
    found=$(tshark -G protocols 2>/dev/null | grep -c '^Clearway') || true
    [ "$found" = 1 ] || fail "tshark does not know the protocol"
}

test_destdir
test_prefix
test_linker
test_dissector
echo "$name: installed, used and uninstalled below DESTDIR and below a prefix"
