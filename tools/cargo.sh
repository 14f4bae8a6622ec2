#!/usr/bin/env bash
# Runs cargo, also in a shell that was started before rustup changed its PATH.
. "$(dirname "$0")/rust-path.sh"
exec cargo "$@"
