//! Names the shared library as programs that are linked against it will look for it: by the version
//! of its interface, so that an incompatible one can be installed beside it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libclearway.so.{major}");
}
