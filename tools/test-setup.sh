#!/usr/bin/env bash
# Walks the paths of tools/setup.sh, each in a clean system: as root; as a user without sudo, with
# sudo, and with one that asks for a password where nobody is to answer; with a rustup, with an old
# toolchain, and where no package has Rust. Whatever setup.sh asks for is done to the letter, by
# whom it asks. Needs root, mmdebstrap, registries, and some twenty minutes; SUITE=noble is Ubuntu
# 24.04.
set -euo pipefail
cd "$(dirname "$0")/.."
# What is mounted here goes away with this process.
[ -n "${CLEARWAY_TEST_SETUP:-}" ] || CLEARWAY_TEST_SETUP=1 exec unshare --mount "$0" "$@"
work=$(mktemp -d)
name=test-setup
. tools/background.sh
. tools/clean-root.sh

# The name of a path, which is its root's, too.
begin() {
    path=$1 root=$work/$1
    clean "$root"
    in_root "$root" useradd --create-home alice
    mkdir "$root/clearway"
    git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - |
        tar -C "$root/clearway" -xf -
    in_root "$root" chown -R alice:alice /clearway
    rm -rf "$work/archives.new"
    [ ! -d "$work/archives" ] || cp -l "$work/archives"/* "$root/var/cache/apt/archives/"
}

# What has been fetched is not fetched again.
end() {
    mkdir -p "$work/archives"
    cp -n "$root"/var/cache/apt/archives/*.deb "$work/archives/" || true
    umount "$root/proc"
    rm -rf --one-file-system "$root"
}

# as USER COMMAND...: in /clearway, by a login shell's PATH.
as() {
    local user=$1 home=/home/$1
    [ "$user" != root ] || home=/root
    shift
    in_root "$root" setpriv --reuid="$user" --regid="$user" --init-groups \
        env HOME="$home" USER="$user" sh -c 'cd /clearway && exec "$@"' sh "$@" </dev/null
}

as_root_quietly() { as root "$@" >"$work/quiet.log" 2>&1 || fail "$path: root cannot run: $*"; }

# setup USER WHAT: what it says is in $work/setup.log
setup() { as "$1" tools/setup.sh "$2" >"$work/setup.log" 2>&1; }

says() { sed -n 's/^setup: //p' "$work/setup.log" | fold -s -w 94 | sed 's/^/  /; s/ *$//'; }

# succeeds USER WHAT: at once, and leaves nothing to do.
succeeds() {
    say "$path: $1 runs tools/setup.sh $2"
    setup "$1" "$2" || fail "$path: it fails"
    says
    setup "$1" "$2" && [ ! -s "$work/setup.log" ] || fail "$path: there is still something to do"
}

# asks_root USER WHAT: root does what it asks for, until it asks for nothing.
asks_root() {
    local asked
    say "$path: $1 runs tools/setup.sh $2"
    until setup "$1" "$2"; do
        says
        asked=$(sed -n 's/^setup: please let root run: //p' "$work/setup.log")
        [ -n "$asked" ] || fail "$path: it says nothing that root could do"
        # Words of their own.
        # shellcheck disable=SC2086
        as_root_quietly env ${asked/install /install -y --no-install-recommends }
    done
    says
}

# builds USER PACKAGE...: with the toolchain that it has now.
builds() {
    local user=$1
    shift
    as "$user" env CARGO_TARGET_DIR=/tmp/target CARGO_PROFILE_DEV_DEBUG=0 \
        tools/cargo.sh build --quiet --locked \
        "${@/#/--package=}" >"$work/build.log" 2>&1 || fail "$path: $* cannot be built"
    say "$path: $* built by $(as "$user" tools/cargo.sh --version | cut -d ' ' -f 1,2)"
}

walk_root() {
    begin root
    for what in build demo lint test packages instructions; do succeeds root "$what"; done
    builds root clearway-cli clearway-capi
    as root /tmp/target/debug/clearway --version >"$work/version" ||
        fail "$path: clearway does not start"
    say "$path: $(cat "$work/version")"
    end
}

walk_without_sudo() {
    begin without-sudo
    for what in build demo lint test packages instructions; do asks_root alice "$what"; done
    builds alice clearway-base
    end
}

walk_with_sudo() {
    begin with-sudo
    as_root_quietly apt-get update
    as_root_quietly apt-get install -y --no-install-recommends sudo
    # With a password, nobody is there to type it.
    echo 'alice ALL=(ALL) ALL' >"$root/etc/sudoers.d/alice"
    say "$path: alice runs tools/setup.sh build, and nobody types her password"
    ! setup alice build || fail "$path: nobody has typed a password, and yet it went on"
    says
    echo 'alice ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/alice"
    succeeds alice build
    succeeds alice lint
    builds alice clearway-base
    end
}

# rustup_for USER: a package of this system, or by pipx.
rustup_for() {
    as_root_quietly apt-get update
    as_root_quietly apt-get install -y --no-install-recommends ca-certificates
    if as root apt-get install -y --no-install-recommends rustup >"$work/quiet.log" 2>&1; then
        return 0
    fi
    as_root_quietly apt-get install -y --no-install-recommends pipx
    as "$1" pipx install rustup >"$work/quiet.log" 2>&1 || fail "$path: pipx cannot install rustup"
}

# Has a rustup without a toolchain, then one with an old one.
walk_with_rustup() {
    begin "rustup-of-$1"
    rustup_for "$1"
    asks_root "$1" build
    builds "$1" clearway-base
    as "$1" sh -c '. tools/rust-path.sh
        rustup default none && rustup toolchain uninstall stable
        rustup toolchain install 1.80 --no-self-update --profile minimal && rustup default 1.80' \
        >"$work/quiet.log" 2>&1 || fail "$path: no old toolchain can be had"
    succeeds "$1" build
    succeeds "$1" lint
    builds "$1" clearway-base
    end
}

# A Debian 12 without its security updates has no Rust that is new enough.
walk_without_packages() {
    begin no-rust
    sed -i '/security/d' "$root/etc/apt/sources.list"
    say "$path: root runs tools/setup.sh build"
    ! setup root build || fail "$path: it has found one"
    says
    grep -q 'pipx install rustup (pipx is a package)' "$work/setup.log" ||
        fail "$path: pipx is not named"
    as_root_quietly apt-get install -y --no-install-recommends pipx
    as root pipx install rustup >"$work/quiet.log" 2>&1 || fail "$path: pipx cannot install rustup"
    succeeds root build
    builds root clearway-base
    end
}

walk_root
walk_without_sudo
walk_with_sudo
walk_with_rustup root
walk_with_rustup alice
[ "$suite" != bookworm ] || walk_without_packages
say "all paths of tools/setup.sh were walked on $suite"
