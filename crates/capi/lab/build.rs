//! Names the shared library by the version of its interface, as `crates/capi` does.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libclearway_lab.so.{major}");
}
