#!/usr/bin/env bash
# Installs what has been built, below $PREFIX (/usr/local unless given). `tools/uninstall.sh` takes
# it away again.
#
#   DESTDIR            put in front of every path, for who makes a package
#   LIBDIR             where libraries go: $PREFIX/lib unless given
#   BUILD              where cargo put what it built: target/release unless given
#   WIRESHARK_PLUGINS  where the dissector goes: where this machine's Wireshark looks, unless given
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local}
destdir=${DESTDIR:-}
libdir=${LIBDIR:-$prefix/lib}
build=${BUILD:-target/release}
share=$prefix/share/clearway
doc=$prefix/share/doc/clearway
# What has been installed, one path a line; of directories, with a "/" behind, only those that were
# made here.
manifest=$destdir$share/installed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf 'install: %s\n' "$*"; }
record() { printf '%s\n' "$1" >>"$work/installed"; }

make_directory() {
    [ -d "$destdir$1" ] && return 0
    make_directory "$(dirname "$1")"
    mkdir -m 755 "$destdir$1"
    record "$1/"
}

# put MODE FILE PATH
put() {
    make_directory "$(dirname "$3")"
    install -m "$1" "$2" "$destdir$3"
    record "$3"
}

# put_stripped MODE WHAT-OF-IT FILE PATH
put_stripped() {
    ${STRIP:-strip} "$2" -o "$work/stripped" "$3"
    put "$1" "$work/stripped" "$4"
}

# put_filled FILE PATH: with the paths of this installation in it.
put_filled() {
    sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@includedir@|$prefix/include|" \
        -e "s|@version@|$version|" "$1" >"$work/filled"
    put 644 "$work/filled" "$2"
}

# link NAME PATH
link() {
    ln -sfn "$1" "$destdir$2"
    record "$2"
}

# put_files DIRECTORY PATH: those whose names are read.
put_files() {
    local file
    while read -r file; do put 644 "$file" "$2/${file#"$1"/}"; done
}

# put_tree DIRECTORY PATH: the files that git knows, or all where this is no work tree.
put_tree() {
    { git ls-files -- "$1" 2>/dev/null | grep . || find "$1" -type f; } | put_files "$1" "$2"
}

install_command() {
    # The names of functions stay, for backtraces.
    put_stripped 755 --strip-debug "$build/clearway" "$prefix/bin/clearway"
    put_stripped 755 --strip-debug "$build/clearwayd" "$prefix/bin/clearwayd"
    put_filled packaging/clearway.service "$prefix/lib/systemd/system/clearway.service"
    put 644 packaging/clearway.sysusers "$prefix/lib/sysusers.d/clearway.conf"
    put 644 clearway.toml "$share/clearway.toml"
    put 644 packaging/grafana/clearway.json "$share/grafana.json"
}

install_library() {
    local soname=libclearway.so.${version%%.*} # as in crates/capi/build.rs
    put_stripped 755 --strip-unneeded "$build/libclearway.so" "$libdir/libclearway.so.$version"
    link "libclearway.so.$version" "$libdir/$soname"
    link "$soname" "$libdir/libclearway.so"
    put_stripped 644 --strip-debug "$build/libclearway.a" "$libdir/libclearway.a"
    put 644 crates/capi/include/clearway.h "$prefix/include/clearway.h"
    put_filled crates/capi/clearway.pc.in "$libdir/pkgconfig/clearway.pc"
}

# Man pages and completions: the command writes its own.
install_documents() {
    "$build/clearway" documents "$work/share"
    find "$work/share" -type f | put_files "$work/share" "$prefix/share"
    put 644 README.md "$doc/README.md"
    put 644 LICENSE "$doc/LICENSE"
    put_tree docs "$doc/docs"
    put_tree examples "$doc/examples"
}

# The folder of Wireshark's Lua plugins: root's are everybody's.
wireshark_plugins() {
    local whose=Personal program
    [ "$(id -u)" != 0 ] || whose=Global
    [ -z "$destdir" ] || return 0
    for program in tshark wireshark; do
        command -v "$program" >/dev/null || continue
        "$program" -G folders 2>/dev/null | sed -n "s/^$whose Lua Plugins:[[:space:]]*//p"
        return 0
    done
}

install_dissector() {
    local plugins=${WIRESHARK_PLUGINS:-$(wireshark_plugins)}
    put 644 packaging/wireshark/clearway.lua "$share/clearway.lua"
    if [ -n "$plugins" ]; then
        put 644 packaging/wireshark/clearway.lua "$plugins/clearway.lua"
    elif [ -z "$destdir" ]; then
        say "no Wireshark here; it shows Clearway's packets with $share/clearway.lua in its" \
            "folder of Lua plugins (Help, About, Folders)"
    fi
}

# What an earlier version has left where this one has nothing. Its directories stay ours.
take_over() {
    [ -f "$manifest" ] || return 0
    grep '/$' "$manifest" >>"$work/installed" || true
    grep -v '/$' "$manifest" | grep -vxFf "$work/installed" >"$work/old" || true
    while read -r path; do rm -f "$destdir$path"; done <"$work/old"
}

# Programs find a library without being told only where the dynamic linker looks.
tell_the_linker() {
    [ -z "$destdir" ] || return 0
    # grep reads to the end: ldconfig fails if nobody does.
    if [ "$(id -u)" = 0 ] && ldconfig -NXv 2>/dev/null | grep "^$libdir:" >/dev/null; then
        ldconfig
    else
        say "programs find the library with LD_LIBRARY_PATH=$libdir; or, as root, all do after:" \
            "echo $libdir >/etc/ld.so.conf.d/clearway.conf && ldconfig"
    fi
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
: >"$work/installed"
[ -z "$destdir" ] || mkdir -p "$destdir"
make_directory "$share"
install_command
install_library
install_documents
install_dissector
take_over
record "$share/installed"
LC_ALL=C sort -u "$work/installed" >"$manifest"
tell_the_linker
[ -n "$destdir" ] ||
    say "done; the daemon's user: systemd-sysusers $prefix/lib/sysusers.d/clearway.conf;" \
    "the configuration to begin with: cp $share/clearway.toml /etc/clearway.toml"
