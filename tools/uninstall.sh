#!/usr/bin/env bash
# Takes away what tools/install.sh put below $PREFIX (/usr/local unless given), and the directories
# that it made and nobody else uses. PREFIX and DESTDIR have to be those of the installation.
# /etc/clearway.toml stays.
set -euo pipefail
prefix=${PREFIX:-/usr/local}
destdir=${DESTDIR:-}
manifest=$destdir$prefix/share/clearway/installed

[ -f "$manifest" ] || { echo "uninstall: nothing was installed below $destdir$prefix" >&2; exit 1; }
# Longest first: what is in a directory comes before it.
LC_ALL=C sort -r "$manifest" | { mapfile -t paths; for path in "${paths[@]}"; do
    case $path in
        */) rmdir "$destdir$path" 2>/dev/null || true ;;
        *) rm -f "$destdir$path" ;;
    esac
done; }
if [ -z "$destdir" ] && [ "$(id -u)" = 0 ]; then ldconfig; fi
