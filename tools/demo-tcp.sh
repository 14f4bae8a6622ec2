#!/usr/bin/env bash
# demo-tcp.sh CLEARWAY: the second half of `make demo`, a web server on Clearway's TCP, measured
# once. Only root can have it: others are told so.
set -euo pipefail
if [ "$(id -u)" != 0 ]; then
    echo "A web server on Clearway's TCP beside the kernel's: as root," \
        "tools/setup.sh demo && $1 demo --tcp"
    exit 0
fi
exec "$1" demo --tcp --runs 1
