//! Which system calls a running daemon may make.
//!
//! Everything that is not named here is refused: starting programs, tracing, mounting, loading
//! modules and BPF programs, becoming another user, making memory executable, and what the kernel
//! will invent. Calls that are only allowed with some arguments are in [`conditional`].

use std::collections::BTreeMap;

use clearway_nic::seccomp;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use syscalls::Sysno;

use super::{ON, refusals};

/// The rules as the library wants them: by number; an empty list allows the call as it is.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Confines the calling thread, and says how well.
pub(super) fn confine() -> Result<String, String> {
    let missing = |error: seccompiler::Error| {
        format!("this kernel has no seccomp ({error}); Linux with CONFIG_SECCOMP_FILTER has")
    };
    let clone3 = compile(Rules::from([(Sysno::clone3 as i64, vec![])]), ALLOW, NOT_THERE)?;
    seccompiler::apply_filter(&clone3).map_err(missing)?;
    match seccomp::install(&telling(&compile(allowed()?, TRAP, ALLOW)?)) {
        Ok(told) => refusals::answer(told).map(|()| ON.to_owned()),
        // Before Linux 5.0, or where somebody else listens already, as some containers do.
        Err(error) => {
            let silent = compile(allowed()?, REFUSE, ALLOW)?;
            seccompiler::apply_filter(&silent).map_err(missing)?;
            Ok(format!("on, but refused calls are not logged ({error})"))
        }
    }
}

const ALLOW: SeccompAction = SeccompAction::Allow;
const REFUSE: SeccompAction = SeccompAction::Errno(Errno::PERM.raw_os_error() as u32);
/// Threads are then started by `clone`, whose flags can be looked at, where those of `clone3` cannot.
const NOT_THERE: SeccompAction = SeccompAction::Errno(Errno::NOSYS.raw_os_error() as u32);
/// The library cannot say "tell", so it says this, and [`telling`] replaces it.
const TRAP: SeccompAction = SeccompAction::Trap;

fn compile(
    rules: Rules,
    otherwise: SeccompAction,
    action: SeccompAction,
) -> Result<BpfProgram, String> {
    let architecture = std::env::consts::ARCH.try_into();
    architecture
        .and_then(|architecture| SeccompFilter::new(rules, otherwise, action, architecture))
        .and_then(BpfProgram::try_from)
        .map_err(|error| format!("the filter cannot be made ({error}); please report this"))
}

/// The program with its refusals told to this process.
fn telling(program: &BpfProgram) -> Vec<seccomp::Instruction> {
    /// `BPF_RET | BPF_K` of linux/bpf_common.h.
    const RETURN: u16 = 0x06;
    let trap = u32::from(TRAP);
    let told = |code, k| if code == RETURN && k == trap { seccomp::RETURN_TELL } else { k };
    program.iter().map(|i| (i.code, i.jt, i.jf, told(i.code, i.k))).collect()
}

fn allowed() -> Result<Rules, String> {
    let mut rules: Rules = ALLOWED.iter().map(|call| (*call as i64, Vec::new())).collect();
    rules.extend(conditional().map_err(|error| format!("{error}; please report this"))?);
    Ok(rules)
}

/// Allowed whatever their arguments.
const ALLOWED: &[Sysno] = &[
    // Descriptors.
    Sysno::read,
    Sysno::readv,
    Sysno::pread64,
    Sysno::preadv2,
    Sysno::write,
    Sysno::writev,
    Sysno::pwrite64,
    Sysno::close,
    Sysno::dup,
    Sysno::dup3,
    Sysno::fcntl,
    Sysno::lseek,
    Sysno::fstat,
    Sysno::pipe2,
    // Files, as far as Landlock lets them: the own sockets are removed at the end.
    Sysno::openat,
    Sysno::statx,
    #[cfg(target_arch = "x86_64")]
    Sysno::newfstatat,
    #[cfg(not(target_arch = "x86_64"))]
    Sysno::fstatat,
    Sysno::readlinkat,
    Sysno::unlinkat,
    Sysno::getdents64,
    Sysno::faccessat,
    // Sockets; which families is below.
    Sysno::bind,
    Sysno::connect,
    Sysno::accept4,
    Sysno::sendto,
    Sysno::sendmsg,
    Sysno::sendmmsg,
    Sysno::recvfrom,
    Sysno::recvmsg,
    Sysno::recvmmsg,
    Sysno::getsockopt,
    Sysno::setsockopt,
    Sysno::getsockname,
    Sysno::getpeername,
    Sysno::shutdown,
    // Waiting.
    Sysno::ppoll,
    Sysno::epoll_create1,
    Sysno::epoll_ctl,
    Sysno::epoll_pwait,
    Sysno::epoll_pwait2,
    Sysno::eventfd2,
    Sysno::timerfd_create,
    Sysno::timerfd_settime,
    Sysno::signalfd4,
    Sysno::futex,
    Sysno::membarrier,
    Sysno::sched_yield,
    Sysno::nanosleep,
    Sysno::clock_nanosleep,
    Sysno::clock_gettime,
    Sysno::restart_syscall,
    // Memory; what may be executable is below.
    Sysno::brk,
    Sysno::munmap,
    Sysno::mremap,
    Sysno::madvise,
    Sysno::mlock,
    Sysno::munlock,
    Sysno::memfd_create,
    Sysno::ftruncate,
    Sysno::fallocate,
    // Threads and signals.
    Sysno::rseq,
    Sysno::set_robust_list,
    Sysno::sched_getaffinity,
    Sysno::sched_setaffinity,
    Sysno::sigaltstack,
    Sysno::rt_sigaction,
    Sysno::rt_sigprocmask,
    Sysno::rt_sigreturn,
    Sysno::exit,
    Sysno::exit_group,
    // Facts about this process and machine.
    Sysno::getpid,
    Sysno::getppid,
    Sysno::gettid,
    Sysno::getuid,
    Sysno::geteuid,
    Sysno::getgid,
    Sysno::getegid,
    Sysno::getrandom,
    Sysno::getcpu,
    Sysno::uname,
    Sysno::sysinfo,
    Sysno::capget,
    // What x86 has from earlier days.
    #[cfg(target_arch = "x86_64")]
    Sysno::poll,
    #[cfg(target_arch = "x86_64")]
    Sysno::epoll_wait,
    #[cfg(target_arch = "x86_64")]
    Sysno::stat,
    #[cfg(target_arch = "x86_64")]
    Sysno::lstat,
    #[cfg(target_arch = "x86_64")]
    Sysno::access,
    #[cfg(target_arch = "x86_64")]
    Sysno::readlink,
    #[cfg(target_arch = "x86_64")]
    Sysno::unlink,
];

/// Families of sockets (linux/socket.h): Unix, IPv4, IPv6, netlink, packet, XDP. The kernel's UDP
/// ports are claimed with plain sockets.
const FAMILIES: [u64; 6] = [1, 2, 10, 16, 17, 44];
/// Commands of bpf(2) (linux/bpf.h) that change the tables of a program that is there, or look it up;
/// none that brings a program or a table into the kernel.
const BPF_COMMANDS: [u64; 9] = [1, 2, 3, 4, 15, 24, 25, 26, 27];
/// Options of prctl(2) that name a thread or its memory.
const PRCTL_OPTIONS: [u64; 3] = [15, 16, 0x53_56_4d_41];
/// `PROT_EXEC` of mmap(2).
const EXECUTABLE: u64 = 4;
/// `CLONE_THREAD` of clone(2).
const THREAD: u64 = 0x1_0000;
/// `TIOCSTI` of ioctl_tty(2): typing on somebody else's terminal.
const TYPE_ON_TERMINAL: u64 = 0x5412;

/// Allowed with some arguments only.
fn conditional() -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let one_of = |index, values: &[u64]| {
        values.iter().map(|value| rule(index, Eq, *value)).collect::<Result<Vec<_>, _>>()
    };
    let process = u64::from(std::process::id());
    let not_executable = || Ok(vec![rule(2, MaskedEq(EXECUTABLE), 0)?]);
    Ok(Rules::from([
        (Sysno::socket as i64, one_of(0, &FAMILIES)?),
        (Sysno::socketpair as i64, one_of(0, &FAMILIES[..1])?),
        (Sysno::bpf as i64, one_of(0, &BPF_COMMANDS)?),
        (Sysno::prctl as i64, one_of(0, &PRCTL_OPTIONS)?),
        (Sysno::ioctl as i64, vec![rule(1, Ne, TYPE_ON_TERMINAL)?]),
        (Sysno::mmap as i64, not_executable()?),
        (Sysno::mprotect as i64, not_executable()?),
        (Sysno::clone as i64, vec![rule(0, MaskedEq(THREAD), THREAD)?]),
        // Limits are read, and changed for nobody else.
        (Sysno::prlimit64 as i64, one_of(0, &[0, process])?),
        // How a process ends itself when all is lost.
        (Sysno::tgkill as i64, one_of(0, &[process])?),
    ]))
}

fn rule(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    // All of these arguments are 32 bits wide, or their upper half does not matter.
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}
