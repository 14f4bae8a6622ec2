# What is to be known of the compiler at hand: sourced, after rust-path.sh.

host_of_compiler() { rustc -vV | sed -n 's/^host: //p'; }

llvm_of_compiler() { rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p'; }

# Where the record of which code runs often is (profile/README.md), if there is one.
record_of_compiler() {
    local release commit
    # `rustc 1.95.0 (59807616e 2026-04-14)`
    read -r _ release commit _ <<<"$(rustc --version)"
    commit=${commit#(}
    echo "profile/$release-${commit:-unknown}-$(host_of_compiler).profdata"
}

# The llvm-profdata of its LLVM: of its toolchain (rustup's component llvm-tools), or Debian's.
profdata_of_compiler() {
    local file
    for file in "$(rustc --print sysroot)/lib/rustlib/$(host_of_compiler)/bin/llvm-profdata" \
        "/usr/lib/llvm-$(llvm_of_compiler)/bin/llvm-profdata"; do
        if [ -x "$file" ]; then echo "$file"; return 0; fi
    done
    return 1
}
