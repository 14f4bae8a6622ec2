//! Compiles the shim of the dpdk driver against the system's libdpdk, and links that.

use std::process::Command;

const SHIM: &str = "src/dpdk/shim.c";
/// What the shim calls. The drivers themselves are plug-ins that DPDK loads when it starts.
const LIBRARIES: [&str; 5] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal"];

pub(crate) fn build() {
    println!("cargo::rerun-if-changed={SHIM}");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    pkg_config(&["--atleast-version=22.11"]);
    cc::Build::new().file(SHIM).flags(pkg_config(&["--cflags"])).compile("clearway_dpdk");
    for flag in pkg_config(&["--libs-only-L"]) {
        println!("cargo::rustc-link-search=native={}", flag.trim_start_matches("-L"));
    }
    for library in LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}

/// The words that pkg-config answers with.
fn pkg_config(question: &[&str]) -> Vec<String> {
    let output = Command::new("pkg-config").args(question).arg("libdpdk").output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            text.split_whitespace().map(str::to_owned).collect()
        }
        Ok(_) => crate::fail(
            "the feature `dpdk` needs DPDK 22.11 or newer, which pkg-config does not find. \
             Install it (apt-get install dpdk-dev), name its folder with PKG_CONFIG_PATH=..., or \
             build without the feature",
        ),
        Err(error) => crate::fail(&format!(
            "the feature `dpdk` asks pkg-config for libdpdk, and it cannot be run: {error}. \
             Install it (apt-get install pkg-config)"
        )),
    }
}
