//! The Linux kernel as peer. Needs root; says so and passes otherwise.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use clearway_base::{MILLISECOND, Random, SlotId};
use clearway_wire::tcp::Flags;

use super::transfer::Flow;
use crate::*;
use lab::{Direction, Fate, Lab, Seen};

mod lab;

/// Who opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opener {
    This,
    Kernel,
}

/// A connection of both kinds of ends.
fn open(lab: &mut Lab, opener: Opener, settings: Settings) -> (SlotId, TcpStream) {
    let now = lab.now();
    match opener {
        Opener::This => {
            let bound = (lab.there, 0);
            let listener = lab.within(|| TcpListener::bind(bound)).expect("a port is free");
            let remote = listener.local_addr().expect("bound");
            let local = SocketAddr::new(lab.host.address.ip(), 0);
            let key = lab.host.stack.connect(now, local, remote, 1500, settings).expect("room");
            let accepting = lab.beside(move || listener.accept().expect("it comes").0);
            lab.run("the kernel accepts", |_| accepting.is_finished());
            (key, accepting.join().expect("no panic"))
        }
        Opener::Kernel => {
            let port = lab.host.address.port();
            let listener = lab.host.stack.listen(None, port, 16, 1500, settings).expect("free");
            let to = lab.host.address;
            let connecting = lab.beside(move || TcpStream::connect(to).expect("it is accepted"));
            let mut key = None;
            lab.run("the kernel is accepted", |lab| {
                key = key.or_else(|| lab.host.stack.accept(listener));
                key.is_some() && connecting.is_finished()
            });
            (key.expect("accepted"), connecting.join().expect("no panic"))
        }
    }
}

/// The kernel's side of an exchange: sends `content`, and returns what has come until the end.
fn exchange_there(stream: &TcpStream, content: &[u8]) -> Vec<u8> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = stream;
            stream.write_all(content).expect("it is taken");
            stream.shutdown(Shutdown::Write).expect("it is open");
        });
        let (mut stream, mut received) = (stream, Vec::new());
        stream.read_to_end(&mut received).expect("it ends in order");
        received
    })
}

/// Sends `bytes` each way at the same time, and closes. Each end has received what the other has
/// sent.
fn exchange(lab: &mut Lab, key: SlotId, stream: TcpStream, bytes: usize) {
    let mut flow = Flow::new(key, bytes, 1);
    let content = Flow::new(key, bytes, 2).content;
    let expected = content.clone();
    let exchanging = lab.beside(move || exchange_there(&stream, &content));
    let mut random = Random::new(3);
    lab.run("all has come both ways", |lab| {
        flow.serve(&mut lab.host, &mut random, false);
        flow.is_finished && exchanging.is_finished()
    });
    assert!(exchanging.join().expect("no panic") == flow.content, "what the kernel has received");
    assert!(flow.received == expected, "what this end has received");
    forget(lab, key);
    assert_eq!(lab.counter("InCsumErrors"), 0);
}

/// The connection is over, in order, and all memory has come back.
fn forget(lab: &mut Lab, key: SlotId) {
    lab.run("the connection is over", |lab| {
        let info = lab.host.stack.info(key).expect("ours");
        matches!(info.state, State::Closed | State::TimeWait)
    });
    assert_eq!(lab.host.stack.info(key).expect("ours").end, Some(End::Orderly));
    while let Some(extent) = lab.host.stack.pop_sent(key) {
        lab.host.store.take(extent);
    }
    let now = lab.now();
    lab.host.stack.forget(now, key, &mut lab.host.store);
    assert!(lab.host.store.is_empty());
}

/// Segments with data are lost, one of a hundred, or are late, one of fifty, either way.
fn lossy(seed: u64) -> lab::Judge {
    let mut random = Random::new(seed);
    Box::new(move |_| match random.below(100) {
        0 => Fate::Drop,
        1 | 2 => Fate::Delay(MILLISECOND + random.below(2 * MILLISECOND)),
        _ => Fate::Pass,
    })
}

#[test]
fn both_ways_over_a_good_wire() {
    for opener in [Opener::This, Opener::Kernel] {
        for v6 in [false, true] {
            let Some(mut lab) = Lab::new(v6) else { return };
            let (key, stream) = open(&mut lab, opener, Settings::default());
            let info = lab.host.stack.info(key).expect("open");
            assert!(info.timestamps && info.sack && info.window_scales.0 > 0, "{info:?}");
            exchange(&mut lab, key, stream, 10_000_000);
        }
    }
}

#[test]
fn both_ways_over_a_bad_wire() {
    for (seed, opener) in [(1, Opener::This), (2, Opener::Kernel)] {
        let Some(mut lab) = Lab::new(false) else { return };
        let (key, stream) = open(&mut lab, opener, Settings::default());
        lab.judge = lossy(seed);
        exchange(&mut lab, key, stream, 5_000_000);
        // Both ends have told the other what came out of order, and twice.
        for way in [Direction::In, Direction::Out] {
            let has_blocks = |seen: &&Seen| seen.way == way && !seen.repr.options.sack().is_empty();
            assert!(lab.seen.iter().filter(has_blocks).count() > 10, "{way:?}");
        }
    }
}

/// Without timestamps, selective acknowledgements and window scaling, as this end and as the kernel
/// wants it; segments of other sizes; either congestion control, paced and not.
#[test]
fn with_options_on_and_off() {
    let default = Settings::default();
    let plain = Settings { timestamps: false, sack: false, window_scaling: false, ..default };
    let small = Settings {
        segment_bytes_max: Some(200),
        receive_buffer_bytes: 5000,
        receive_buffer_bytes_max: 0,
        ..default
    };
    let swift = Settings { congestion: Congestion::Swift, pacing: true, ..default };
    for (index, settings) in [plain, small, swift].into_iter().enumerate() {
        let Some(mut lab) = Lab::new(false) else { return };
        let opener = [Opener::This, Opener::Kernel][index % 2];
        let (key, stream) = open(&mut lab, opener, settings);
        lab.judge = lossy(7);
        exchange(&mut lab, key, stream, 300_000);
    }
    for opener in [Opener::This, Opener::Kernel] {
        let Some(mut lab) = Lab::new(false) else { return };
        for name in ["tcp_timestamps", "tcp_sack", "tcp_window_scaling"] {
            lab.sysctl(name, "0");
        }
        let (key, stream) = open(&mut lab, opener, default);
        let info = lab.host.stack.info(key).expect("open");
        assert_eq!((info.timestamps, info.sack, info.window_scales), (false, false, (0, 0)));
        lab.judge = lossy(8);
        exchange(&mut lab, key, stream, 300_000);
    }
}

/// One segment is lost: the kernel's blocks say so, and it is sent again without a timeout.
#[test]
fn a_lost_segment_is_found_by_what_the_kernel_has_received() {
    let Some(mut lab) = Lab::new(false) else { return };
    let (key, stream) = open(&mut lab, Opener::This, Settings::default());
    let mut count = 0;
    lab.judge = Box::new(move |seen| {
        count += u32::from(seen.way == Direction::Out && seen.length > 1000);
        let is_lost = count == 5 && seen.way == Direction::Out && seen.length > 1000;
        if is_lost { Fate::Drop } else { Fate::Delay(5 * MILLISECOND) }
    });
    let mut flow = Flow::new(key, 60_000, 1);
    let receiving = lab.beside(move || exchange_there(&stream, b""));
    let mut random = Random::new(3);
    let mut phases = Vec::new();
    lab.run("all has come", |lab| {
        flow.serve(&mut lab.host, &mut random, false);
        let info = lab.host.stack.info(key).expect("ours");
        if phases.last() != Some(&info.recovery) {
            phases.push(info.recovery);
        }
        flow.is_finished && receiving.is_finished()
    });
    assert!(receiving.join().expect("no panic") == flow.content);
    assert_eq!(phases, ["open", "recovery", "open"]);
    assert_eq!(lab.host.stack.info(key).expect("ours").segments_retransmitted, 1);
}

/// RFC 9293, 3.6: the kernel has sent all and still receives, and the other way round.
#[test]
fn half_closed() {
    for first in [Opener::This, Opener::Kernel] {
        let Some(mut lab) = Lab::new(false) else { return };
        let (key, stream) = open(&mut lab, Opener::Kernel, Settings::default());
        let mut flow = Flow::new(key, 500_000, 1);
        let content = Flow::new(key, 500_000, 2).content;
        let expected = content.clone();
        let working = lab.beside(move || {
            let (mut stream, mut received) = (stream, Vec::new());
            if first == Opener::Kernel {
                stream.shutdown(Shutdown::Write).expect("it is open");
                stream.read_to_end(&mut received).expect("it ends in order");
            } else {
                stream.read_to_end(&mut received).expect("it ends in order");
                stream.write_all(&content).expect("it is taken");
            }
            received
        });
        let mut random = Random::new(3);
        if first == Opener::Kernel {
            lab.run("the kernel's half is closed", |lab| {
                lab.host.stack.info(key).expect("ours").state == State::CloseWait
            });
        }
        lab.run("the other half is closed", |lab| {
            flow.serve(&mut lab.host, &mut random, false);
            flow.is_finished && working.is_finished()
        });
        assert!(working.join().expect("no panic") == flow.content);
        assert!(first == Opener::Kernel || flow.received == expected);
        forget(&mut lab, key);
    }
}

/// A reset of either end ends the other.
#[test]
fn reset() {
    let Some(mut lab) = Lab::new(false) else { return };
    let (key, stream) = open(&mut lab, Opener::This, Settings::default());
    let extent = lab.host.store.fill(&[1; 1000]);
    lab.host.stack.send(key, extent).expect("room");
    // What has come and nobody has read: closing resets (RFC 9293, section 3.6.1).
    lab.run("it has come", |lab| lab.host.stack.info(key).expect("ours").queued_bytes == 0);
    drop(stream);
    lab.run("the kernel's reset", |lab| lab.host.stack.info(key).expect("ours").end.is_some());
    assert_eq!(lab.host.stack.info(key).expect("ours").end, Some(End::Reset));

    let (key, stream) = open(&mut lab, Opener::This, Settings::default());
    let reading = lab.beside(move || { &stream }.read(&mut [0; 10]).map_err(|error| error.kind()));
    let now = lab.now();
    lab.host.stack.abort(now, key);
    lab.run("the kernel is reset", |_| reading.is_finished());
    assert_eq!(reading.join().expect("no panic"), Err(std::io::ErrorKind::ConnectionReset));
    // Nobody listens there any more.
    let to = SocketAddr::new(lab.host.address.ip(), 4);
    let connecting = lab.beside(move || TcpStream::connect(to).map_err(|error| error.kind()));
    lab.run("the kernel is refused", |_| connecting.is_finished());
    let refused = connecting.join().expect("no panic").expect_err("nobody listens");
    assert_eq!(refused, std::io::ErrorKind::ConnectionRefused);
}

/// The kernel's reader sleeps until its window is closed and has been probed, then reads all.
#[test]
fn the_kernel_closes_its_window() {
    let Some(mut lab) = Lab::new(false) else { return };
    lab.sysctl("tcp_rmem", "4096 20000 20000");
    let (key, stream) = open(&mut lab, Opener::This, Settings::default());
    let mut flow = Flow::new(key, 400_000, 1);
    let mut random = Random::new(3);
    let probes = |lab: &Lab| {
        let is_probe = |seen: &&Seen| seen.way == Direction::Out && seen.length == 1;
        lab.seen.iter().filter(is_probe).count()
    };
    lab.run("two probes of a closed window", |lab| {
        flow.serve(&mut lab.host, &mut random, false);
        lab.host.stack.info(key).expect("ours").send_window_bytes == 0 && probes(lab) >= 2
    });
    let receiving = lab.beside(move || exchange_there(&stream, b""));
    lab.run("all has come", |lab| {
        flow.serve(&mut lab.host, &mut random, false);
        flow.is_finished && receiving.is_finished()
    });
    assert!(receiving.join().expect("no panic") == flow.content);
    forget(&mut lab, key);
}

/// This end's app does not read until the kernel has probed its closed window.
#[test]
fn this_end_closes_its_window() {
    let Some(mut lab) = Lab::new(false) else { return };
    let settings = Settings { receive_buffer_bytes: 20_000, ..Settings::default() };
    let (key, stream) = open(&mut lab, Opener::Kernel, settings);
    let content = Flow::new(key, 400_000, 2).content;
    let expected = content.clone();
    let sending = lab.beside(move || exchange_there(&stream, &content));
    lab.run("two probes of a closed window", |lab| {
        let window_bytes = lab.host.stack.info(key).expect("ours").receive_window_bytes;
        window_bytes < 1 << 7 && lab.counter("TCPWinProbe") >= 2
    });
    let (mut flow, mut random) = (Flow::new(key, 0, 1), Random::new(3));
    lab.run("all has come", |lab| {
        flow.serve(&mut lab.host, &mut random, false);
        flow.is_finished && sending.is_finished()
    });
    assert!(flow.received == expected);
    sending.join().expect("no panic");
    forget(&mut lab, key);
}

/// RFC 9293, 3.6, figure 13: the two FINs cross.
#[test]
fn both_close_at_once() {
    let Some(mut lab) = Lab::new(false) else { return };
    let (key, stream) = open(&mut lab, Opener::Kernel, Settings::default());
    let is_fin = |seen: &Seen| seen.repr.flags.contains(Flags::FIN);
    lab.judge = Box::new(move |seen| if is_fin(seen) { Fate::Hold } else { Fate::Pass });
    let closing = lab.beside(move || exchange_there(&stream, b""));
    let is_closed =
        |lab: &Lab, by: Direction| lab.seen.iter().any(|seen| seen.way == by && is_fin(seen));
    lab.run("the kernel's FIN is on the wire", |lab| is_closed(lab, Direction::In));
    lab.host.stack.shutdown(key);
    lab.run("this end's FIN is, too", |lab| is_closed(lab, Direction::Out));
    let state = |lab: &Lab| lab.host.stack.info(key).expect("ours").state;
    assert_eq!(state(&lab), State::FinWait1);
    lab.judge = Box::new(|_| Fate::Pass);
    lab.let_go();
    assert_eq!(state(&lab), State::Closing);
    lab.run("both are closed", |lab| state(lab) == State::TimeWait && closing.is_finished());
    assert!(closing.join().expect("no panic").is_empty());
    forget(&mut lab, key);
}

/// RFC 3168, 6.1: of a mark on the wire each end tells the other, who says that it has heard of it.
#[test]
fn marks_instead_of_losses() {
    let Some(mut lab) = Lab::new(false) else { return };
    lab.sysctl("tcp_ecn", "1");
    let settings = Settings { ecn: true, ..Settings::default() };
    let (key, stream) = open(&mut lab, Opener::This, settings);
    assert!(lab.host.stack.info(key).expect("open").ecn);
    let mut random = Random::new(5);
    lab.judge = Box::new(move |_| if random.chance(1, 50) { Fate::Mark } else { Fate::Pass });
    exchange(&mut lab, key, stream, 2_000_000);
    for way in [Direction::In, Direction::Out] {
        let has = |flag: Flags| {
            let mut segments = lab.seen.iter().filter(|seen| seen.way == way);
            segments
                .any(|seen| seen.repr.flags.contains(flag) && !seen.repr.flags.contains(Flags::SYN))
        };
        assert!(has(Flags::ECE) && has(Flags::CWR), "{way:?}");
    }
}

/// A program that nobody here has written: curl fetches what this end serves, over a bad wire.
#[test]
fn curl() {
    let Some(mut lab) = Lab::new(false) else { return };
    let settings = Settings::default();
    let listener = lab.host.stack.listen(None, 80, 16, 1500, settings).expect("free");
    lab.judge = lossy(11);
    fetch(&mut lab, listener, &[]);
}

/// curl on the kernel's side fetches what this end serves. What there was to say of the connection
/// when the request had come.
fn fetch(lab: &mut Lab, listener: Listener, options: &'static [&str]) -> Info {
    let url = match lab.host.address.ip() {
        IpAddr::V4(address) => format!("http://{address}/"),
        IpAddr::V6(address) => format!("http://[{address}]/"),
    };
    let curling = lab.beside(move || {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "50", &url]);
        curl.args(options).output().expect("curl is installed")
    });
    let mut key = None;
    lab.run("curl comes", |lab| {
        key = key.or_else(|| lab.host.stack.accept(listener));
        key.is_some_and(|key| lab.host.stack.info(key).expect("ours").unread_bytes > 0)
    });
    let key = key.expect("accepted");
    let info = lab.host.stack.info(key).expect("ours");
    let body = Flow::new(key, 1_000_000, 1).content;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut flow = Flow::new(key, 0, 1);
    flow.content = [head.into_bytes(), body.clone()].concat();
    let mut random = Random::new(3);
    lab.run("curl has it all", |lab| {
        flow.serve(&mut lab.host, &mut random, false);
        curling.is_finished()
    });
    let output = curling.join().expect("no panic");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == body);
    assert!(flow.received.starts_with(b"GET / HTTP/1.1\r\n"));
    info
}

/// RFC 7413: the kernel asks for a cookie, and comes again with that and its request.
#[test]
fn the_kernel_comes_with_data() {
    for v6 in [false, true] {
        let Some(mut lab) = Lab::new(v6) else { return };
        let fast_open = FastOpen { pending_max: 4, ..FastOpen::default() };
        let settings = Settings { fast_open, ..Settings::default() };
        let listener = lab.host.stack.listen(None, 80, 16, 1500, settings).expect("free");
        let has_data =
            [(); 2].map(|()| fetch(&mut lab, listener, &["--tcp-fastopen"]).syn_had_data);
        assert_eq!(has_data, [false, true]);
        assert_eq!(lab.host.stack.counters().fast_opens_accepted, 1);
        assert_eq!(lab.counter("TCPFastOpenActive"), 1);
    }
}

/// The kernel gives a cookie, and its program has what the next SYN brings. One whose cookie the
/// kernel does not know any more is sent again.
#[test]
fn the_kernel_takes_data() {
    for v6 in [false, true] {
        let Some(mut lab) = Lab::new(v6) else { return };
        lab.sysctl("tcp_fastopen", "1027"); // for all listeners
        let bound = (lab.there, 0);
        let listener = lab.within(|| TcpListener::bind(bound)).expect("a port is free");
        let taken = [1, 2, 3].map(|round| {
            if round == 3 {
                lab.sysctl("tcp_fastopen_key", "1-2-3-4");
            }
            connect_with_data(&mut lab, &listener)
        });
        assert_eq!(taken, [false, true, false]);
        let counters = *lab.host.stack.counters();
        assert_eq!((counters.fast_opens_taken, counters.fast_opens_refused), (1, 1));
        assert_eq!(lab.counter("TCPFastOpenPassive"), 1);
    }
}

/// A thousand bytes are given to a connection before its SYN leaves. True if they have gone with
/// that; a program of the kernel's has read them.
fn connect_with_data(lab: &mut Lab, listener: &TcpListener) -> bool {
    let fast_open = FastOpen { connects: true, ..FastOpen::default() };
    let settings = Settings { fast_open, ..Settings::default() };
    let remote = listener.local_addr().expect("bound");
    let (local, now) = (SocketAddr::new(lab.host.address.ip(), 0), lab.now());
    let key = lab.host.stack.connect(now, local, remote, 1500, settings).expect("room");
    let content = Flow::new(key, 1000, 1).content;
    let extent = lab.host.store.fill(&content);
    lab.host.stack.send(key, extent).expect("it is new");
    let listener = listener.try_clone().expect("it is there");
    let reading = lab.beside(move || {
        let (mut stream, _) = listener.accept().expect("it comes");
        let mut bytes = vec![0; 1000];
        stream.read_exact(&mut bytes).expect("it comes whole");
        bytes
    });
    lab.run("the kernel has it", |lab| {
        let is_opening = lab.host.stack.info(key).expect("ours").state == State::SynSent;
        reading.is_finished() && !is_opening
    });
    assert!(reading.join().expect("no panic") == content);
    let was_taken = lab.host.stack.info(key).expect("ours").syn_had_data;
    lab.host.stack.shutdown(key);
    forget(lab, key);
    was_taken
}
