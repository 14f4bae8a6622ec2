# For scripts that try something in a clean system: sourced after background.sh, in a mount
# namespace of their own. The system is a Debian 12, or what SUITE says, with nothing in it but apt.
# noble is Ubuntu 24.04, whose keys mmdebstrap wants: package ubuntu-archive-keyring, in Debian
# since 13.
suite=${SUITE:-bookworm}
case $suite in
    noble) components=main,universe ;;
    *) components=main ;;
esac
clean_more() {
    umount "$work"/*/proc 2>/dev/null || true
}

say() { printf '%s: %s\n' "$name" "$*"; }

# clean ROOT: makes one. It trusts whom this machine trusts.
clean() {
    [ -e "$work/clean.tar" ] ||
        mmdebstrap --quiet --variant=minbase --include=apt \
            --components="$components" "$suite" "$work/clean.tar" \
            2>"$work/mmdebstrap.log" || fail "mmdebstrap failed"
    mkdir "$1"
    tar -C "$1" -xf "$work/clean.tar"
    cp /etc/resolv.conf "$1/etc/resolv.conf"
    mkdir -p "$1/usr/local/share/ca-certificates"
    cp -r /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates"
    mount -t proc proc "$1/proc"
    ln -sfn /proc/self/fd "$1/dev/fd"
}

# in_root ROOT COMMAND...; what goes on in the background is `become`, whose process is the
# command's.
in_root() { (become "$@"); }
become() {
    local root=$1
    shift
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive \
        chroot "$root" "$@"
}
