#!/usr/bin/env bash
# Makes .deb and .rpm packages, and the files of a container image, of what has been built, in
# target/packages. What is in them is what tools/install.sh installs; this only says which part
# belongs to which package. The system's own tools make them, and find out what each depends on.
set -euo pipefail
cd "$(dirname "$0")/.."
export BUILD=${BUILD:-target/release} PREFIX=/usr
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# stage LIBDIR: an installation below $work/stage.
stage() {
    rm -rf "$work/stage"
    DESTDIR=$work/stage LIBDIR=$1 WIRESHARK_PLUGINS=$1/wireshark/plugins tools/install.sh
    rm "$work/stage/usr/share/clearway/installed"
}

# part PACKAGE PATH...: moves what belongs to a package out of the stage.
part() {
    local package=$1 path
    shift
    for path in "$@"; do
        mkdir -p "$work/$package$(dirname "$path")"
        mv "$work/stage$path" "$work/$package$path"
    done
}

# deb PACKAGE
deb() {
    local root=$work/$1 script needed
    mkdir -p "$root/DEBIAN"
    for script in postinst prerm; do
        [ ! -e "packaging/deb/$1.$script" ] ||
            install -m 755 "packaging/deb/$1.$script" "$root/DEBIAN/$script"
    done
    [ ! -e "packaging/deb/$1.triggers" ] ||
        install -m 644 "packaging/deb/$1.triggers" "$root/DEBIAN/triggers"
    mapfile -t needed < <(find "$root/usr" -type f \( -path '*/bin/*' -o -name '*.so.*' \))
    mkdir -p "$work/debian"
    cp packaging/deb/control "$work/debian/control"
    printf '%s\n' "clearway ($version) unstable; urgency=low" "" "  * See git log." "" \
        " -- Clearway developers <>  $(date -R)" >"$work/debian/changelog"
    : >"$work/debian/substvars"
    (
        cd "$work"
        [ ${#needed[@]} = 0 ] || dpkg-shlibdeps "${needed[@]}"
        dpkg-gencontrol "-p$1" "-P$root" 2>/dev/null
    )
    dpkg-deb --root-owner-group --build "$root" "$out" >/dev/null
}

debs() {
    local libdir
    libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    stage "$libdir"
    part libclearway-dev /usr/include "$libdir"/{libclearway.so,libclearway.a,pkgconfig}
    part libclearway0 "$libdir"/{"libclearway.so.${version%%.*}","libclearway.so.$version"}
    mv "$work/stage" "$work/clearway"
    for package in clearway libclearway0 libclearway-dev; do deb "$package"; done
}

rpms() {
    stage /usr/lib64
    rpmbuild --quiet -bb --define "_topdir $work/rpm" --define "_rpmdir $out" \
        --define "_rpmfilename %%{NAME}-%%{VERSION}.%%{ARCH}.rpm" \
        --define "stage $work/stage" --define "version_of_clearway $version" \
        packaging/rpm/clearway.spec
}

# The files of an image: the daemon and the command, the libraries that it is linked with, and its
# user.
container() {
    local root=$work/container library program
    for program in clearway clearwayd; do
        install -D "$work/clearway/usr/bin/$program" "$root/usr/bin/$program"
    done
    ldd "$BUILD/clearway" "$BUILD/clearwayd" | grep -v ':$' | grep -o '/[^ ]*' |
        while read -r library; do
        install -D "$library" "$root$library"
    done
    # Users that the policy names are those of this file.
    install -d "$root/etc" "$root/run/clearway" "$root/tmp"
    printf '%s\n' root:x:0:0::/:/none clearway:x:997:997::/:/none >"$root/etc/passwd"
    printf '%s\n' root:x:0: clearway:x:997: >"$root/etc/group"
    tar -C "$root" --owner=0 --group=0 --sort=name -czf "$out/clearway-container.tar.gz" .
}

rm -rf "$out"
mkdir -p "$out"
debs
container
rpms
ls -sh "$out"
