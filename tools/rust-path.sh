# For scripts that run cargo: sourced. A shell that was started before rustup came has not got it on
# its PATH: ~/.cargo/bin, or that of CARGO_HOME, or ~/.local/bin where pipx has put it. A tilde is
# the user's home even where HOME is not set, as in a service.
rust_home=~/.cargo
for rust_bin in "${CARGO_HOME:-$rust_home}/bin" ~/.local/bin; do
    if [ -x "$rust_bin/rustup" ]; then export PATH="$rust_bin:$PATH"; fi
done
