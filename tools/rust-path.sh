# For scripts that run cargo: sourced. A shell that was started before rustup came has not got it on
# its PATH: ~/.cargo/bin, or ~/.local/bin where pipx has put it.
if [ -f "$HOME/.cargo/env" ]; then . "$HOME/.cargo/env"; fi
if [ -x "$HOME/.local/bin/rustup" ]; then PATH=$HOME/.local/bin:$PATH; fi
