#!/usr/bin/env bash
# Installs what is missing to build Clearway (`build`), to run its demo (`demo`), to check its style
# (`lint`), to test it (`test`), to count its instructions (`instructions`), to record which code
# runs often (`profile`) or to make packages (`packages`). Says what it does, changes nothing that
# is there already (but rustup's default, if that is too old), and explains what to do where it may
# not install. docs/set-up.md has the whole of it.
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
    # cargo
    [ -e /etc/ssl/certs/ca-certificates.crt ] || ! command -v apt-get >/dev/null ||
        echo ca-certificates
    if [ "$1" = demo ] && [ "$(id -u)" != 0 ]; then return 0; fi # then it does without, if need be
    if [ "$1" = packages ]; then
        command -v dpkg-shlibdeps >/dev/null || echo dpkg-dev
        command -v rpmbuild >/dev/null || echo rpm
        # `make test-packages`
        [ "$(id -u)" != 0 ] || command -v mmdebstrap >/dev/null || echo mmdebstrap
    fi
    [ "$1" != instructions ] || command -v valgrind >/dev/null || echo valgrind
    case "$1" in demo | test | profile) ;; *) return 0 ;; esac
    command -v ip >/dev/null || echo iproute2           # namespaces and veth pairs
    command -v curl >/dev/null || echo curl             # asks web servers: demo --tcp, http.c
    command -v wrk >/dev/null || echo wrk               # measures them
    [ "$1" = test ] || return 0
    command -v ping >/dev/null || echo iputils-ping
    command -v ethtool >/dev/null || echo ethtool       # bench --kernel-plain
    # reads our metrics
    /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || echo python3-prometheus-client
    command -v tshark >/dev/null || echo tshark         # packaging/wireshark/clearway.lua
    command -v dpdk-testpmd >/dev/null || echo dpdk-dev # memif against DPDK
    command -v ucx_perftest >/dev/null || echo ucx-utils # bench ops against UCX
    command -v fi_pingpong >/dev/null || echo libfabric-bin # and against libfabric
    pkg-config --exists libdpdk 2>/dev/null || echo libdpdk-dev # the driver dpdk
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# May ask for a password, if there is somebody to ask.
may_be_root() {
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null &&
        { sudo -n true 2>/dev/null || [ -t 0 ]; }; }
}

install_packages() {
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        fail "please install: $* (names as in Debian; this machine has no apt-get)"
    may_be_root || fail "please let root run: apt-get install $*"
    say "installing $*"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

is_new_enough() {
    [ "$(printf '%s\n%s\n' "$RUST_MIN" "$1" | sort -V | head -n 1)" = "$RUST_MIN" ]
}

rust_is_new_enough() {
    command -v cargo >/dev/null && is_new_enough "$(rustc --version 2>/dev/null | cut -d' ' -f2)"
}

# What apt-get would install of a package; nothing if there is none.
candidate() {
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([0-9].*\)/\1/p'
}

# Debian 12 has an old rustc, but a new one as rustc-web, kept for browsers. Which is new enough?
suffix_of_rustc() {
    local suffix
    for suffix in "" -web; do
        if is_new_enough "$(candidate "rustc$suffix")"; then echo "$suffix"; return 0; fi
    done
    return 1
}

# Packages that have a toolchain: rustup where there is one (Debian 13, Ubuntu 24.04), or the
# compiler itself. Nothing if none is new enough.
rust_packages() {
    local suffix
    if [ -n "$(candidate rustup)" ]; then echo rustup; return 0; fi
    suffix=$(suffix_of_rustc) || return 0
    printf '%s\n' "rustc$suffix" "cargo$suffix"
    [ "$1" != lint ] || linter_packages "$suffix"
}

linter_packages() { printf '%s\n' "rust$1-clippy" "rustfmt$1"; }

# The packages of a toolchain, if there is neither one nor a rustup to get one, and what a packaged
# one lacks.
missing_rust() {
    local suffix
    command -v rustup >/dev/null || ! command -v apt-cache >/dev/null && return 0
    if ! rust_is_new_enough; then
        rust_packages "$1"
    elif [ "$1" = lint ] && ! linters_are_there && [ "$(command -v cargo)" = /usr/bin/cargo ]; then
        suffix=$(suffix_of_rustc) && linter_packages "$suffix"
    fi
}

# A machine that has just been set up knows of no packages yet.
know_packages() {
    command -v apt-cache >/dev/null && [ -z "$(candidate gcc)" ] || return 0
    may_be_root || fail "please let root run: apt-get update"
    as_root apt-get update -qq
}

install_rust() {
    rust_is_new_enough && return 0
    command -v rustup >/dev/null ||
        fail "Rust $RUST_MIN or newer is needed, and no package here has it. As any user," \
        "install it with rustup: pipx install rustup (pipx is a package), or the line on" \
        "https://rustup.rs. Then run this again"
    install_toolchain
    rust_is_new_enough ||
        fail "rustc is older than $RUST_MIN even so: is another one first on the PATH?"
}

install_toolchain() {
    say "installing the stable Rust toolchain with rustup"
    # A rustup that came as a package cannot update itself, and would fail for that.
    rustup toolchain install stable --no-self-update --profile minimal \
        --component clippy --component rustfmt
    rustup default stable
}

linters_are_there() {
    cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1
}

# A toolchain that did not come from here may lack the two.
install_rust_linters() {
    linters_are_there && return 0
    command -v rustup >/dev/null ||
        fail "clippy and rustfmt for $(rustc --version) are needed: rustup has them" \
        "(https://rustup.rs)"
    say "installing clippy and rustfmt"
    rustup component add clippy rustfmt
}

# What puts together what `make profile` has counted is of the compiler's own LLVM.
install_llvm_tools() {
    . "$(dirname "$0")/compiler.sh"
    profdata_of_compiler >/dev/null || install_packages "llvm-$(llvm_of_compiler)"
}

what=${1:-build}
. "$(dirname "$0")/rust-path.sh"
know_packages
mapfile -t packages < <(missing_packages "$what"; missing_rust "$what")
install_packages "${packages[@]}"
install_rust
if [ "$what" = lint ]; then install_rust_linters; fi
if [ "$what" = profile ]; then install_llvm_tools; fi
