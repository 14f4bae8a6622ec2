//! The clients, which are programs of others: curl, which compares, and wrk, which counts.

use super::answer;
use super::run::{Counted, Load};
use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::process::{RoleProcess, helper_output};
use crate::role::{Part, Role};
use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How much longer than asked wrk may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Has wrk say in JSON what it has found.
const SCRIPT: &str = r#"
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%.0f,"duration_us":%.0f,"bytes":%.0f,"p50_us":%.0f,"p99_us":%.0f,"errors":%.0f}\n',
    summary.requests, summary.duration, summary.bytes, latency:percentile(50),
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// What `SCRIPT` says.
#[derive(Debug, Deserialize)]
struct Said {
    requests: u64,
    duration_us: u64,
    bytes: u64,
    p50_us: u64,
    p99_us: u64,
    errors: u64,
}

/// Whether both are there.
pub(super) fn check() -> Result<(), Error> {
    let is_missing = |name: &&str| {
        let mut program = Command::new(name);
        program.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        program.status().is_err()
    };
    let missing: Vec<_> = ["curl", "wrk"].into_iter().filter(is_missing).collect();
    match missing.join(" and ") {
        none if none.is_empty() => Ok(()),
        names => Err(Error::Options(format!(
            "demo --tcp needs {names}; install them: apt-get install {} (Debian and Ubuntu), or \
             tools/setup.sh demo as root",
            missing.join(" ")
        ))),
    }
}

/// Asks for each of `urls` on one connection; an error says how what came is not those bodies.
pub(super) fn compare(namespace_of: u32, urls: &[String], bodies: &[usize]) -> Result<(), String> {
    let namespace = format!("--net=/proc/{namespace_of}/ns/net");
    let words =
        [&namespace, "--", "curl", "--silent", "--show-error", "--fail", "--max-time", "20"];
    let words: Vec<&str> = words.into_iter().chain(urls.iter().map(String::as_str)).collect();
    let received = helper_output("nsenter", &words).map_err(|error| error.to_string())?;
    let expected: Vec<u8> = bodies.iter().flat_map(|&bytes| answer::body(bytes)).collect();
    if received == expected {
        return Ok(());
    }
    let same = received.iter().zip(&expected).take_while(|(one, other)| one == other).count();
    Err(format!(
        "curl received {} bytes instead of {}, of which the first {same} are right",
        received.len(),
        expected.len()
    ))
}

/// Has wrk measure. `directory` is for its script.
pub(super) fn wrk(
    namespace_of: u32,
    directory: &Path,
    url: &str,
    load: &Load,
    interrupt: &Interrupt,
) -> Result<Counted, Error> {
    let script = directory.join("wrk.lua");
    fs::write(&script, SCRIPT).while_("writing a script for wrk")?;
    let (connections, duration) = (load.connections.to_string(), format!("{}s", load.seconds));
    let script = script.to_string_lossy();
    let words = ["-t", "1", "-c", &connections, "-d", &duration, "-s", &script, url];
    let arguments = words.map(str::to_owned).to_vec();
    let part = Part::Become { program: "wrk".into(), arguments };
    let role = Role::new(part).in_namespace_of(Some(namespace_of));
    let mut wrk = RoleProcess::start("wrk", &role)?;
    let patience = Duration::from_secs(load.seconds) + PATIENCE;
    let line = wrk.await_line(patience, interrupt, |line| line.starts_with('{'))?;
    counted(&line, load).map_err(|message| Error::Role { who: "wrk".into(), message })
}

fn counted(line: &str, load: &Load) -> Result<Counted, String> {
    let said: Said = serde_json::from_str(line).map_err(|_| format!("said {}", line.trim()))?;
    let Said { requests, duration_us, bytes, p50_us, p99_us, errors } = said;
    // What a connection was asked last for may be on its way.
    let answer_bytes = answer::length(load.body_bytes) as u64;
    let bytes_min = requests * answer_bytes;
    let bytes_max = bytes_min + load.connections as u64 * answer_bytes;
    if errors > 0 || requests == 0 || !(bytes_min..=bytes_max).contains(&bytes) {
        return Err(format!(
            "{errors} errors; {bytes} bytes of {requests} answers of {answer_bytes} bytes each"
        ));
    }
    Ok(Counted {
        requests,
        requests_per_s: requests as f64 / (duration_us as f64 / 1e6),
        p50_ns: 1000 * p50_us,
        p99_ns: 1000 * p99_us,
    })
}
