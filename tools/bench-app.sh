#!/usr/bin/env bash
# bench-app.sh BUILD: the C program of `clearway bench`, linked with the library in BUILD and beside
# it; it is for measuring, and is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# The name under which programs look for the library, as in crates/capi/build.rs.
ln -sfn libclearway.so "$build/libclearway.so.${version%%.*}"
cc -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -Wall -Wextra -I crates/capi/include bench/app.c \
    -L "$build" -lclearway -Wl,-rpath,'$ORIGIN' -o "$build/clearway-bench-app"
