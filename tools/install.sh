#!/usr/bin/env bash
# Installs what has been built below $PREFIX (default /usr/local): the clearway command, its systemd unit, the C
# library, its header and its pkg-config file. BUILD names where cargo put them (default target/release).
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local}
build=${BUILD:-target/release}

install -D -m 755 "$build/clearway" "$prefix/bin/clearway"
mkdir -p "$prefix/lib/systemd/system"
sed -e "s|@prefix@|$prefix|" packaging/clearway.service >"$prefix/lib/systemd/system/clearway.service"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
soname=libclearway.so.${version%%.*} # as in crates/capi/build.rs
install -D -m 755 "$build/libclearway.so" "$prefix/lib/libclearway.so.$version"
ln -sfn "libclearway.so.$version" "$prefix/lib/$soname"
ln -sfn "$soname" "$prefix/lib/libclearway.so"
install -D -m 644 "$build/libclearway.a" "$prefix/lib/libclearway.a"
install -D -m 644 crates/capi/include/clearway.h "$prefix/include/clearway.h"
mkdir -p "$prefix/lib/pkgconfig"
sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$prefix/lib|" -e "s|@includedir@|$prefix/include|" -e "s|@version@|$version|" \
    crates/capi/clearway.pc.in >"$prefix/lib/pkgconfig/clearway.pc"
