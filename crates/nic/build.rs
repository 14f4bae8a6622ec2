//! Compiles the eBPF programs with clang; `af_xdp::program`, `ebpf::hiding` and `ebpf::turning`
//! embed the objects.
//! With the feature `dpdk` also the shim of that driver.

#[cfg(feature = "dpdk")]
#[path = "build/dpdk.rs"]
mod dpdk;

use std::path::PathBuf;
use std::process::Command;

const FOLDER: &str = "bpf";
const PROGRAMS: [&str; 3] = ["steer", "hide", "turn"];

fn main() {
    #[cfg(feature = "dpdk")]
    dpdk::build();
    println!("cargo::rerun-if-changed={FOLDER}");
    println!("cargo::rerun-if-env-changed=CLANG");
    PROGRAMS.iter().for_each(|name| build_program(name));
}

fn build_program(name: &str) {
    let source = format!("{FOLDER}/{name}.c");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let folder = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = folder.join(format!("{name}.o"));
    // Debug information is not for debugging: the map definitions are in its type section.
    let outcome = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c",
            &source, "-o",
        ])
        .arg(&object)
        .status();
    match outcome {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!(
            "{clang} could not compile crates/nic/{source} for eBPF ({status}); it needs clang 12 \
             or newer with the bpf target"
        )),
        Err(error) => fail(&format!(
            "the eBPF programs are compiled by {clang}, which cannot be run: \
             {error}. Install it (apt-get install clang) or name another with CLANG=..."
        )),
    }
}

/// Shows `message` as the reason why the build stops.
fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    std::process::exit(1)
}
