#!/usr/bin/env bash
# Installs what is missing to build Clearway (`build`), to run its demo (`demo`), to check its style (`lint`) or
# to test it (`test`). Says what it does, changes nothing that is there already, and explains what to do where it
# may not install.
set -euo pipefail

RUST_MIN=1.89

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Debian packages by the program or file that shows that they are there.
missing_packages() {
    command -v cc >/dev/null || echo gcc
    command -v make >/dev/null || echo make
    command -v clang >/dev/null || echo clang          # compiles the eBPF program
    command -v pkg-config >/dev/null || echo pkg-config # examples/hello.c
    echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1 || echo libc6-dev
    if [ "$1" = demo ] && [ "$(id -u)" != 0 ]; then return 0; fi # then it makes no namespaces
    case "$1" in demo | test) ;; *) return 0 ;; esac
    command -v ip >/dev/null || echo iproute2           # namespaces and veth pairs
    [ "$1" = test ] || return 0
    command -v ping >/dev/null || echo iputils-ping
    command -v tshark >/dev/null || echo tshark         # packaging/wireshark/clearway.lua
    command -v dpdk-testpmd >/dev/null || echo dpdk-dev # memif against DPDK
    pkg-config --exists libdpdk 2>/dev/null || echo libdpdk-dev # the driver dpdk
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "please install: $* (names as in Debian; this machine has no apt-get)"
    if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null && ! [ -t 0 ]; then
        fail "please run: sudo apt-get install $*"
    fi
    say "installing $*"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

rust_is_new_enough() {
    command -v cargo >/dev/null || return 1
    local found
    found=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$RUST_MIN" "$found" | sort -V | head -n 1)" = "$RUST_MIN" ]
}

install_rust() {
    # A default toolchain of a rustup that is already there may only not be on the PATH yet.
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    rust_is_new_enough && return 0
    command -v rustup >/dev/null || install_packages rustup || true
    command -v rustup >/dev/null ||
        fail "Rust $RUST_MIN or newer is needed; install it with rustup, and run this again"
    say "installing the stable Rust toolchain with rustup"
    rustup toolchain install stable --profile minimal --component clippy --component rustfmt
    rustup default stable
    rust_is_new_enough || fail "rustc is older than $RUST_MIN even so: is another one first on the PATH?"
}

# A toolchain that did not come from here may lack the two.
install_rust_linters() {
    cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null || fail "please install clippy and rustfmt for $(rustc --version)"
    say "installing clippy and rustfmt"
    rustup component add clippy rustfmt
}

mapfile -t packages < <(missing_packages "${1:-build}")
install_packages "${packages[@]}"
install_rust
if [ "${1:-build}" = lint ]; then install_rust_linters; fi
