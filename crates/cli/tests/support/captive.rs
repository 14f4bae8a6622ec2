//! A thread of another process that makes the system calls it is told to, as if an attacker had
//! taken it over.

use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// A process whose first thread stands still until this is dropped.
pub(crate) struct Captive {
    thread: Pid,
    registers: nix::libc::user_regs_struct,
}

impl Captive {
    /// Stops a process whose first thread waits in a system call, as soon as it does.
    pub(crate) fn take(process: u32) -> Self {
        let thread = Pid::from_raw(process as i32);
        loop {
            ptrace::attach(thread).expect("root may trace it");
            waitpid(thread, None).expect("it has stopped");
            let registers = ptrace::getregs(thread).expect("its registers");
            let is_in_call = registers.orig_rax != u64::MAX;
            if is_in_call {
                return Self { thread, registers };
            }
            ptrace::detach(thread, None).expect("it goes on to its next call");
        }
    }

    /// What the kernel says to this call, as it says it: below zero are errors.
    pub(crate) fn call(&mut self, number: u64, arguments: [u64; 6]) -> i64 {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let mut registers = self.registers;
        // The instruction of the call that it waits in has two bytes.
        registers.rip -= 2;
        registers.rax = number;
        // Or the kernel would start that one again.
        registers.orig_rax = u64::MAX;
        (registers.rdi, registers.rsi, registers.rdx) = (rdi, rsi, rdx);
        (registers.r10, registers.r8, registers.r9) = (r10, r8, r9);
        ptrace::setregs(self.thread, registers).expect("set");
        ptrace::step(self.thread, None).expect("one instruction");
        waitpid(self.thread, None).expect("made");
        ptrace::getregs(self.thread).expect("its registers").rax as i64
    }
}

impl Drop for Captive {
    fn drop(&mut self) {
        let _ = ptrace::setregs(self.thread, self.registers);
        let _ = ptrace::detach(self.thread, None);
    }
}
