//! The processes of a benchmark, as their parent sees them: started, listened to, ended.
//!
//! A role is this very program started again as `bench-role`; what it then does is in `role`.
//! It reports [`Event`]s as JSON lines on its standard output.

use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::load::Sample;
use crate::role::Role;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What a role tells its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// It is up; a server adds where it can be reached.
    Ready(String),
    /// Warm-up is over; the measurement begins now.
    Measuring,
    /// The measurement has just ended. The role goes on until its standard input is closed.
    Finished(Sample),
    /// So many frames have passed in so long. The role goes on until it is ended.
    Counted { frames: u64, seconds: f64 },
    /// It gives up.
    Failed(String),
}

/// How to start this program again. Not `/proc/self/exe`, which would be another program when
/// something in between (`unshare`) resolves it.
pub(crate) fn own_program() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// How long a process may take to end by itself before it is killed, or to say why it has failed.
const GRACE: Duration = Duration::from_secs(2);
/// The same for one that nobody needs any more, and that may not look at its input.
const LAST_GRACE: Duration = Duration::from_millis(100);

/// A running role. Dropping it ends it.
pub(crate) struct RoleProcess {
    who: String,
    child: Child,
    output: ChildStdout,
    /// Bytes of the output that are not yet a line.
    partial: Vec<u8>,
    /// Held open: the role ends its wait when this closes.
    input: Option<ChildStdin>,
}

impl RoleProcess {
    /// Starts this program again to play `role`. `who` is for messages.
    pub(crate) fn start(who: &str, role: &Role) -> Result<Self, Error> {
        Self::start_under(who, &[], role)
    }

    /// The same with another program's command line in front, such as `unshare --net`.
    pub(crate) fn start_under(who: &str, prefix: &[&str], role: &Role) -> Result<Self, Error> {
        let program = own_program();
        let mut words = prefix.iter().copied().chain([program.as_str(), "bench-role"]);
        let first = words.next().unwrap_or_default().to_owned();
        let mut command = Command::new(&first);
        command.args(words).arg(role.to_argument()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            command.spawn().map_err(|source| Error::Start { program: first, source })?;
        let output = child.stdout.take().expect("the output was asked for as a pipe");
        let input = child.stdin.take();
        Ok(Self { who: who.to_owned(), child, output, partial: Vec::new(), input })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its next event.
    pub(crate) fn event(
        &mut self,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Event, Error> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(line) = self.line() {
                return self.understand(&line);
            }
            if !interrupt.wait(&self.output, deadline)? {
                return Err(Error::Silent { who: self.who.clone(), seconds: patience.as_secs() });
            }
            self.read(interrupt)?;
        }
    }

    /// Waits for [`Event::Ready`].
    pub(crate) fn ready(
        &mut self,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<String, Error> {
        match self.event(patience, interrupt)? {
            Event::Ready(address) => Ok(address),
            other => Err(self.failed(format!("said {other:?} before it was ready"))),
        }
    }

    /// Waits until `condition` holds. What the process says meanwhile is for people; that it ends
    /// is a failure.
    pub(crate) fn await_condition(
        &mut self,
        patience: Duration,
        interrupt: &Interrupt,
        condition: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        while !condition() {
            let now = Instant::now();
            if now >= deadline {
                let seconds = patience.as_secs();
                return Err(Error::Silent { who: self.who.clone(), seconds });
            }
            if interrupt.wait(&self.output, now + Duration::from_millis(2))? {
                self.read(interrupt)?;
                if let Some(line) = self.line()
                    && let Ok(Event::Failed(message)) = serde_json::from_slice(&line)
                {
                    return Err(self.failed(message));
                }
            }
        }
        Ok(())
    }

    /// Writes to its standard input: for roles that have become another program.
    pub(crate) fn tell(&mut self, text: &str) -> Result<(), Error> {
        let input = self.input.as_mut().expect("the input was asked for as a pipe");
        input.write_all(text.as_bytes()).while_("writing to a process")
    }

    /// Waits for a line of text that is `wanted`, and drops those before it.
    pub(crate) fn await_line(
        &mut self,
        patience: Duration,
        interrupt: &Interrupt,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String, Error> {
        let deadline = Instant::now() + patience;
        loop {
            while let Some(line) = self.line() {
                let line = String::from_utf8_lossy(&line);
                if wanted(&line) {
                    return Ok(line.into_owned());
                }
            }
            if !interrupt.wait(&self.output, deadline)? {
                return Err(Error::Silent { who: self.who.clone(), seconds: patience.as_secs() });
            }
            self.read(interrupt)?;
        }
    }

    /// Why it has given up, if it says so before it ends.
    pub(crate) fn failure(&mut self, interrupt: &Interrupt) -> Option<Error> {
        let gives_up = |line: &str| matches!(serde_json::from_str(line), Ok(Event::Failed(_)));
        let line = self.await_line(GRACE, interrupt, gives_up).ok()?;
        self.understand(line.as_bytes()).err()
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.partial.iter().position(|&byte| byte == b'\n')?;
        Some(self.partial.drain(..=end).collect())
    }

    fn read(&mut self, interrupt: &Interrupt) -> Result<(), Error> {
        let mut bytes = [0; 4096];
        match rustix::io::read(&self.output, &mut bytes) {
            Ok(0) => {
                // Ctrl-C reaches the children of a terminal too; then they are not to blame.
                interrupt.check()?;
                let status = self.child.wait().while_("waiting for a process")?;
                Err(self.failed(format!("ended early ({status}); its messages are above")))
            }
            Ok(count) => {
                self.partial.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno).while_("reading from a process"),
        }
    }

    fn understand(&self, line: &[u8]) -> Result<Event, Error> {
        match serde_json::from_slice(line) {
            Ok(Event::Failed(message)) => Err(self.failed(message)),
            Ok(event) => Ok(event),
            Err(_) => {
                let line = String::from_utf8_lossy(line);
                Err(self.failed(format!("said something that is not an event: {}", line.trim())))
            }
        }
    }

    fn failed(&self, message: String) -> Error {
        Error::Role { who: self.who.clone(), message }
    }

    /// Asks it to end, as an operator would, and waits for a short while; `drop` does the rest.
    pub(crate) fn terminate(&mut self) {
        if kill_process(Pid::from_child(&self.child), Signal::TERM).is_ok() {
            self.wait_for_end(GRACE);
        }
    }

    /// Waits until it has ended, for so long at most.
    fn wait_for_end(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for RoleProcess {
    /// Whoever has done its part, or sees its input close, ends by itself, and what it does at its
    /// end is done (`tools/profile.sh` needs that); others are killed.
    fn drop(&mut self) {
        self.input.take();
        self.wait_for_end(LAST_GRACE);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end; its standard error becomes the message when it fails.
pub(crate) fn helper(program: &str, arguments: &[&str]) -> Result<(), Error> {
    helper_output(program, arguments).map(drop)
}

/// The same; returns what it has written to its standard output.
pub(crate) fn helper_output(program: &str, arguments: &[&str]) -> Result<Vec<u8>, Error> {
    let command = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start { program: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Helper { command: command(), message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Part;

    /// A shell in the place of a server.
    fn server(script: &str) -> RoleProcess {
        let role = Role::new(Part::HoldNamespace);
        RoleProcess::start_under("the server", &["sh", "-c", script], &role).expect("a shell")
    }

    #[test]
    fn who_gives_up_says_why_and_who_ends_does_not() {
        let (interrupt, _signals) = Interrupt::without_signals();
        let told = |script| server(script).failure(&interrupt).map(|error| error.to_string());
        let reason = told(r#"echo '"measuring"'; echo '{"failed":"no room"}'"#);
        assert_eq!(reason.as_deref(), Some("the server failed: no room"));
        assert_eq!(told(r#"echo '"measuring"'"#), None);
    }
}
