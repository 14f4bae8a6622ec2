//! Which system calls a running daemon, and its broker, may make.
//!
//! Everything that is not named here is refused: starting programs, tracing, mounting, loading
//! modules and BPF programs, becoming another user, making memory executable, and what the kernel
//! will invent. Calls that are only allowed with some arguments are in [`conditional`].
//!
//! A daemon connects to nobody and sends to no address: `connect` is refused, `sendto` goes without
//! an address, and there are no new sockets at all but those that its NICs need, and pairs of
//! streams that are apps' doorbells. (`sendmsg` hides its address from a filter; but no socket that
//! a daemon has or can make takes one, except UDP sockets where there is a kernel interface, and
//! who has such a NIC can send any frame anyway.)

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

/// Who is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A daemon whose NICs are shared memory only.
    Daemon,
    /// A daemon that sends by UDP sockets, all of which are open.
    DaemonOnSockets,
    /// A daemon at the other end of a tap device, which may also send by UDP sockets that are open.
    DaemonOnTap,
    /// A daemon with a kernel interface, or with DPDK, which may use one.
    DaemonOnInterface,
    /// The process that connects for a daemon.
    Broker,
    /// The process that opens NICs for it.
    Opener,
}

/// Confines the calling thread, and says how well.
pub(super) fn confine(who: Who) -> Result<String, String> {
    let missing = |error: seccompiler::Error| {
        format!("this kernel has no seccomp ({error}); Linux with CONFIG_SECCOMP_FILTER has")
    };
    let clone3 = compile(Rules::from([(Sysno::clone3 as i64, vec![])]), ALLOW, NOT_THERE)?;
    seccompiler::apply_filter(&clone3).map_err(missing)?;
    match seccomp::install(&telling(&compile(allowed(who)?, TRAP, ALLOW)?)) {
        Ok(told) => refusals::answer(told).map(|()| ON.to_owned()),
        // Before Linux 5.0, or where somebody else listens already, as some containers do.
        Err(error) => {
            let silent = compile(allowed(who)?, REFUSE, ALLOW)?;
            seccompiler::apply_filter(&silent).map_err(missing)?;
            Ok(format!("on, but refused calls are not logged ({error})"))
        }
    }
}

const ALLOW: SeccompAction = SeccompAction::Allow;
const REFUSE: SeccompAction = SeccompAction::Errno(Errno::PERM.raw_os_error() as u32);
/// Threads are then started by `clone`, whose flags can be looked at, where those of `clone3`
/// cannot.
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

fn allowed(who: Who) -> Result<Rules, String> {
    let own = match who {
        Who::Daemon => &[][..],
        Who::DaemonOnSockets => ON_SOCKETS,
        Who::DaemonOnTap => ON_TAP,
        Who::DaemonOnInterface => ON_INTERFACE,
        Who::Broker => BROKERS,
        Who::Opener => OPENERS,
    };
    let mut rules: Rules = ALLOWED.iter().chain(own).map(|call| (*call as i64, vec![])).collect();
    let reported = |error| format!("{error}; please report this");
    rules.extend(conditional().map_err(reported)?);
    rules.extend(of_sockets(who).map_err(reported)?);
    if who == Who::Opener {
        rules.insert(Sysno::bpf as i64, vec![]);
    }
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
    Sysno::fstatfs,
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
    // Sockets that are there; new ones, and sending, are below.
    Sysno::accept4,
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

/// Beside these, a daemon on a kernel interface claims the kernel's ports, and sends by AF_PACKET.
const ON_INTERFACE: &[Sysno] = &[Sysno::bind, Sysno::sendmmsg];
/// Beside these, a daemon on UDP sockets sends several messages at a time.
const ON_SOCKETS: &[Sysno] = &[Sysno::sendmmsg];
/// Beside these, a daemon on a tap device binds the socket by which it asks the kernel about it,
/// and sends by sockets if it has any.
const ON_TAP: &[Sysno] = &[Sysno::bind, Sysno::sendmmsg];
/// Beside these, a broker connects. Name services ask for who they talk to, and send in several
/// ways. And it changes the mode of the control socket, as far as Landlock lets it.
const BROKERS: &[Sysno] = &[
    Sysno::connect,
    Sysno::sendmmsg,
    Sysno::fchmodat,
    #[cfg(target_arch = "x86_64")]
    Sysno::chmod,
];

/// Beside these, and whatever it wants of bpf(2), an opener listens and connects for memifs.
const OPENERS: &[Sysno] = &[Sysno::bind, Sysno::listen, Sysno::connect];

/// Families of sockets (linux/socket.h).
const UNIX: u64 = 1;
const INTERNET: [u64; 2] = [2, 10];
const NETLINK: u64 = 16;
const PACKET: u64 = 17;
const XDP: u64 = 44;
/// Types of sockets, without the flags that come with them.
const STREAM: u64 = 1;
const DATAGRAMS: u64 = 2;
const TYPE_MASK: u64 = 0xf;
/// `NETLINK_ROUTE` of linux/netlink.h; other protocols are about firewalls, auditing and the like.
const ROUTE: u64 = 0;
/// `MSG_FASTOPEN` of linux/socket.h, which connects.
const FAST_OPEN: u64 = 0x2000_0000;
/// Commands of bpf(2) (linux/bpf.h) that change the tables of a program that is there, or look it
/// up; none that brings a program or a table into the kernel.
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

/// New sockets, and sending.
fn of_sockets(who: Who) -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let no_fast_open = |argument| condition(argument, MaskedEq(FAST_OPEN), 0);
    let no_address = SeccompCondition::new(4, SeccompCmpArgLen::Qword, Eq, 0)?;
    let mut rules = Rules::from([
        (Sysno::sendmsg as i64, vec![SeccompRule::new(vec![no_fast_open(2)?])?]),
        (Sysno::sendto as i64, vec![SeccompRule::new(vec![no_fast_open(3)?, no_address])?]),
        (Sysno::socketpair as i64, vec![of_type(UNIX, STREAM)?]),
    ]);
    match who {
        Who::Daemon | Who::DaemonOnSockets => {}
        Who::DaemonOnInterface => {
            rules.insert(Sysno::socket as i64, sockets_on_interface()?);
        }
        Who::DaemonOnTap => {
            rules.insert(Sysno::socket as i64, vec![to_ask_for_the_network()?]);
        }
        Who::Broker => {
            rules.insert(Sysno::socket as i64, vec![rule(0, Eq, UNIX)?]);
            rules.insert(Sysno::sendto as i64, vec![]);
        }
        Who::Opener => {
            rules.insert(Sysno::socket as i64, sockets_to_open()?);
            // The list of the interfaces is asked for by an address.
            rules.insert(Sysno::sendto as i64, vec![]);
            rules.insert(Sysno::socketpair as i64, vec![rule(0, Eq, UNIX)?]);
        }
    }
    Ok(rules)
}

/// Plain ones to claim the kernel's ports and to ask for interfaces, and those that ask the kernel
/// about its network and for the frames of an interface.
fn sockets_on_interface() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    use SeccompCmpOp::Eq;
    let mut rules = vec![rule(0, Eq, PACKET)?];
    for family in INTERNET {
        rules.extend([of_type(family, STREAM)?, of_type(family, DATAGRAMS)?]);
    }
    rules.push(to_ask_for_the_network()?);
    Ok(rules)
}

/// Sockets by which the kernel is asked about its network.
fn to_ask_for_the_network() -> Result<SeccompRule, seccompiler::BackendError> {
    use SeccompCmpOp::Eq;
    SeccompRule::new(vec![condition(0, Eq, NETLINK)?, condition(2, Eq, ROUTE)?])
}

/// Those of memifs and AF_XDP, and those that ask the kernel for interfaces.
fn sockets_to_open() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    use SeccompCmpOp::Eq;
    let plain = of_type(INTERNET[0], DATAGRAMS)?;
    Ok(vec![rule(0, Eq, UNIX)?, rule(0, Eq, XDP)?, plain, to_ask_for_the_network()?])
}

/// Sockets of this family and type.
fn of_type(family: u64, kind: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let family = condition(0, SeccompCmpOp::Eq, family)?;
    SeccompRule::new(vec![family, condition(1, SeccompCmpOp::MaskedEq(TYPE_MASK), kind)?])
}

fn rule(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![condition(argument, operator, value)?])
}

/// For arguments that are 32 bits wide, or whose upper half does not matter.
fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}
