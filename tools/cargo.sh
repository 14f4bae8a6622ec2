#!/usr/bin/env bash
# Runs cargo, also in a shell that was started before rustup changed its PATH.
[ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
exec cargo "$@"
