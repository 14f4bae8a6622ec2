//! DPDK's `librte_acl`, measured by the program in `bench/classify`.

use crate::error::Error;
use std::path::Path;
use std::process::Command;

/// What `aclbench bench` says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct AclFigures {
    pub(super) ns_per_packet: f64,
    pub(super) ns_per_packet_single: f64,
    pub(super) build_ms: f64,
    pub(super) memory_bytes: usize,
}

pub(super) fn generate(program: &Path, rules: &Path, trace: &Path) -> Result<(), Error> {
    run(program, &["gen".as_ref(), rules.as_os_str(), trace.as_os_str()]).map(|_| ())
}

pub(super) fn measure(program: &Path, rules: &Path, trace: &Path) -> Result<AclFigures, Error> {
    let options = ["--no-huge", "--no-pci", "-m", "2048", "--no-telemetry", "--log-level=error"];
    let mut arguments = vec!["bench".as_ref(), rules.as_os_str(), trace.as_os_str()];
    arguments.extend(options.iter().map(std::ffi::OsStr::new));
    let output = run(program, &arguments)?;
    parse(&output).ok_or_else(|| Error::Helper {
        command: program.display().to_string(),
        message: format!("it said what is not understood: {output}"),
    })
}

fn run(program: &Path, arguments: &[&std::ffi::OsStr]) -> Result<String, Error> {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.map_err(|source| Error::Start { program: program.display().to_string(), source })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Helper { command: program.display().to_string(), message });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads `name=value` pairs.
pub(super) fn parse(output: &str) -> Option<AclFigures> {
    let value = |name: &str| -> Option<f64> {
        let pairs = output.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok())
    };
    (value("wrong")? == 0.0).then_some(())?;
    Some(AclFigures {
        ns_per_packet: value("b32_ns")?,
        ns_per_packet_single: value("b1_ns")?,
        build_ms: value("build_ms")? + value("add_ms")?,
        memory_bytes: value("mem_KiB")? as usize * 1024,
    })
}
