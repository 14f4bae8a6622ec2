//! Scripts of segments and calls against a host of the lab: a line each.
//!
//! ```text
//! < S 0:0(0) win 1000 <mss 1460>      this segment comes; numbers of both sides begin with 0
//! > S. 0:0(0) ack 1 <mss 1460>        this one leaves; options and window count if they are there
//! > *                                 any segment leaves
//! < [ce] . 1:1(0) ack 1 <ECN1 1 0 1>  its IP header is marked, or `[ect0]`, `[ect1]`; and AccECN1
//! +0.2 > . 1:1001(1000) ack 1         ... 0.2 s after what stands before, within a millisecond
//! +1 < . 1:1(0) ack 1001 win 1000     time passes, in which nothing leaves; then this comes
//! +3                                  time passes, in which nothing leaves
//! accept 3 = 4                        a call, and what it gives: a number, or the name of an error
//! begin read 4 100                    a call in a thread of its own, which has to wait
//! end = 100                           it is done, and has given that
//! waits                               it still waits
//! icmp refused seq 0                  an ICMP error of a segment; or `unreachable`, `prohibited`,
//!                                     `protocol`, `too_big MTU`
//! ip 64 0                             hop limit and traffic class of the segment that left last
//! sendto 4 100 5000 fastopen = 100    so many bytes to that port of the peer, with flags
//! tcp_info 4 snd_cwnd = 10            a field of TCP_INFO
//! set tcp_sack 0                      a setting of the host; `get time_wait = 1`
//! ```
//!
//! What leaves is taken in order and has to stand in the script. `//` begins a comment; `;` ends a
//! line, too. Addresses of calls are ports: of this host at its own address for `bind` (`any PORT`
//! for all), of the peer for `connect`. The bytes of a stream follow a pattern, which is compared.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_wire::tcp::{self, EcnCounters, EcnOrder, Flags};
use clearway_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};
use lab::{Epolled, Errno, Host, Options, Polled, Shutdown};

const MS: u64 = 1_000_000;
/// How long a thread may take to come to where it waits.
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome = Result<i64, Errno>;

/// What the byte at a place of a stream is.
const fn byte(at: u32) -> u8 {
    (at ^ (at >> 8)) as u8
}

/// A host and what the script knows of its peer.
pub(crate) struct Script {
    pub(crate) host: Arc<Host>,
    addresses: [IpAddr; 2],
    /// Ports of this host and the peer, of segments.
    ports: [u16; 2],
    begun: Option<JoinHandle<Outcome>>,
    /// Bytes written and read, by descriptor.
    written: HashMap<i32, u32>,
    read: HashMap<i32, u32>,
    line: String,
    /// Hop limit and traffic class of what left last.
    last_ip: (u8, u8),
}

/// A host at port 80 of which nobody listens yet, without any options of TCP.
pub(crate) fn host() -> Script {
    host_of("10.0.0.1", "10.0.0.2")
}

/// The same with other addresses.
pub(crate) fn host_of(here: &str, there: &str) -> Script {
    Script::new(here.parse().unwrap(), there.parse().unwrap())
}

/// The same over IPv6.
pub(crate) fn host_v6() -> Script {
    host_of("fd00::1", "fd00::2")
}

/// One that listens with descriptor 3; calls do not wait.
pub(crate) fn listening() -> Script {
    host().play("socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0")
}

/// One with a connection that it has accepted, descriptor 4; calls do not wait.
pub(crate) fn established() -> Script {
    listening().play(
        "< S 0:0(0) win 10000 <mss 1000>
         > S. 0:0(0) ack 1
         < . 1:1(0) ack 1 win 10000
         accept 3 = 4; nonblock 4 = 0",
    )
}

/// The same, whose calls wait.
pub(crate) fn blocking() -> Script {
    established().play("block 4 = 0")
}

impl Script {
    fn new(here: IpAddr, there: IpAddr) -> Self {
        let host = Arc::new(Host::new(Options::default()));
        let prefix = if here.is_ipv4() { 24 } else { 64 };
        host.add_address(&sockaddr(here, 0), prefix).unwrap();
        for (name, value) in [
            ("isn", 0),
            ("timestamp_offset", 0),
            ("tcp_sack", 0),
            ("tcp_timestamps", 0),
            ("tcp_window_scaling", 0),
            ("quick_acks", 0),
            ("tcp_min_tso_segs", 1),
            ("receive_buffer", 10_000),
            ("receive_buffer_max", 10_000),
        ] {
            host.set(name, value).unwrap();
        }
        Self {
            host,
            addresses: [here, there],
            ports: [80, 5000],
            begun: None,
            written: HashMap::new(),
            read: HashMap::new(),
            line: String::new(),
            last_ip: (0, 0),
        }
    }

    /// Plays the lines of `script`.
    #[track_caller]
    pub(crate) fn play(mut self, script: &str) -> Self {
        for line in script.split(['\n', ';']) {
            let line = line.split("//").next().unwrap_or_default().trim();
            if !line.is_empty() {
                line.clone_into(&mut self.line);
                self.step(line);
            }
        }
        "the end".clone_into(&mut self.line);
        self.expect_silence();
        self
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!("at \"{}\": {why}", self.line);
    }

    #[track_caller]
    fn step(&mut self, line: &str) {
        let (delay, rest) = match line.strip_prefix('+') {
            Some(line) => {
                let (delay, rest) = line.split_once(' ').unwrap_or((line, ""));
                let seconds: f64 = delay.parse().unwrap_or_else(|_| self.fail("a time"));
                (Some((seconds * 1e9).round() as u64), rest.trim())
            }
            None => (None, line),
        };
        if let Some(expected) = rest.strip_prefix("> ") {
            return self.expect(delay, expected);
        }
        self.expect_silence();
        if delay.is_some_and(|delay_ns| self.host.run(delay_ns)) {
            self.expect_silence();
        }
        match rest.strip_prefix("< ") {
            Some(segment) => self.inject(segment),
            None if rest.is_empty() => {}
            None => self.call_line(rest),
        }
    }

    // Segments that leave.

    fn take(&mut self) -> Option<Vec<u8>> {
        let mut place = vec![0; 65_536];
        let (length, _) = self.host.take_packet(&mut place).unwrap()?;
        place.truncate(length);
        Some(place)
    }

    #[track_caller]
    fn expect_silence(&mut self) {
        if let Some(packet) = self.take() {
            let shown = self.show(&packet);
            self.fail(&format!("sent but not in the script: {shown}"));
        }
    }

    #[track_caller]
    fn expect(&mut self, delay: Option<u64>, expected: &str) {
        let begin = self.host.now_ns();
        let delay_ns = delay.unwrap_or(0);
        if delay.is_some() {
            self.host.run(delay_ns + MS);
        }
        let Some(packet) = self.take() else {
            self.fail("nothing is sent");
        };
        let took = self.host.now_ns() - begin;
        if took + MS < delay_ns {
            self.fail(&format!("it is sent after {} s", took as f64 / 1e9));
        }
        let shown = self.show(&packet);
        let (expected, options) =
            expected.split_once('<').map_or((expected, None), |(head, tail)| {
                (head.trim(), Some(tail.trim_end_matches('>')))
            });
        let (has, has_options) = shown.split_once('<').expect("there are always brackets");
        let mut has = has.trim().to_owned();
        if !expected.contains(" win ") {
            has = has.split(" win ").next().unwrap_or_default().to_owned();
        }
        let has_options = has_options.trim_end_matches('>');
        if expected == "*" {
            return;
        }
        if has != expected || options.is_some_and(|options| options != has_options) {
            self.fail(&format!("it is {shown}"));
        }
    }

    /// A segment of this host as a line, and its port is that of segments to come.
    fn show(&mut self, packet: &[u8]) -> String {
        let segment = match self.addresses[0] {
            IpAddr::V4(_) => {
                let view = ipv4::View::new(packet).expect("whole");
                ipv4::Repr::parse(&view, true).expect("valid");
                view.payload()
            }
            IpAddr::V6(_) => ipv6::View::new(packet).expect("whole").payload(),
        };
        self.last_ip = match self.addresses[0] {
            IpAddr::V4(_) => (packet[8], packet[1]),
            IpAddr::V6(_) => (packet[7], packet[0] << 4 | packet[1] >> 4),
        };
        let view = tcp::View::new(segment).expect("whole");
        let check = tcp::Check::Addresses(self.addresses[0], self.addresses[1]);
        let repr = tcp::Repr::parse(&view, check).expect("valid");
        if self.ports[1] == repr.destination_port {
            self.ports[0] = repr.source_port;
        }
        let length = view.payload().len() as u32;
        let first = repr.sequence + u32::from(repr.flags.contains(Flags::SYN));
        for (at, has) in (first..).zip(view.payload()) {
            assert_eq!(*has, byte(at), "at \"{}\": the byte at {at}", self.line);
        }
        let end = repr.sequence.wrapping_add(length);
        let mut line = format!("{} {}:{end}({length})", repr.flags, repr.sequence);
        if repr.flags.contains(Flags::ACK) {
            line += &format!(" ack {}", repr.acknowledgement);
        }
        let options = &repr.options;
        let mut shown = Vec::new();
        shown.extend(options.maximum_segment_size.map(|bytes| format!("mss {bytes}")));
        shown.extend(options.sack_permitted.then(|| "sackOK".to_owned()));
        shown.extend(options.timestamps.map(|it| format!("TS val {} ecr {}", it.value, it.echo)));
        shown.extend(options.window_scale.map(|scale| format!("wscale {scale}")));
        let block = |(start, end): &(u32, u32)| format!("{start}:{end}");
        let blocks: Vec<String> = options.sack().iter().map(block).collect();
        shown.extend(options.counters().map(show_counters));
        shown.extend((!blocks.is_empty()).then(|| format!("sack {}", blocks.join(" "))));
        shown.extend(options.fast_open().map(show_fast_open));
        format!("{line} win {} <{}>", repr.window, shown.join(","))
    }

    // Packets that come.

    fn number(&self, word: &str) -> i64 {
        word.parse().unwrap_or_else(|_| self.fail(&format!("{word} is no number")))
    }

    fn inject(&mut self, line: &str) {
        let (head, options) = line.split_once('<').unwrap_or((line, ""));
        let mut words: Vec<&str> = head.split_whitespace().collect();
        let ecn = match words[0] {
            "[ect1]" => 1,
            "[ect0]" => 2,
            "[ce]" => 3,
            _ => 0,
        };
        words.drain(..usize::from(ecn > 0));
        let flags = words[0].chars().filter(|letter| *letter != '0');
        let flags = flags.fold(Flags::NONE, |flags, letter| {
            flags | Flags::from_letter(letter).unwrap_or_else(|| self.fail("a flag"))
        });
        let (start, rest) = words[1].split_once(':').unwrap_or_else(|| self.fail("a range"));
        let (_, length) = rest.split_once('(').unwrap_or_else(|| self.fail("a length"));
        let start = self.number(start) as u32;
        let length = self.number(length.trim_end_matches(')')) as u32;
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            Some(self.number(words[at + 1]))
        };
        let mut repr = tcp::Repr {
            source_port: value("from").map_or(self.ports[1], |port| port as u16),
            destination_port: self.ports[0],
            sequence: start,
            acknowledgement: value("ack").unwrap_or(0) as u32,
            flags,
            window: value("win").unwrap_or(10_000) as u16,
            urgent: 0,
            options: tcp::Options::default(),
        };
        for option in options.trim_end_matches('>').split(',').map(str::trim) {
            match option.split_whitespace().collect::<Vec<_>>()[..] {
                [] => {}
                ["mss", bytes] => {
                    repr.options.maximum_segment_size = Some(self.number(bytes) as u16);
                }
                ["sack", ref blocks @ ..] => {
                    let mut sack = tcp::SackBlocks::NONE;
                    for (start, end) in blocks.iter().filter_map(|block| block.split_once(':')) {
                        let (start, end) = (self.number(start), self.number(end));
                        sack.push(start as u32, end as u32);
                    }
                    repr.options.extra = match repr.options.extra {
                        tcp::Extra::Counted(it) => {
                            tcp::Counted { sack: tcp::Blocks::of(&sack), ..it }.into()
                        }
                        _ => sack.into(),
                    };
                }
                [kind @ ("ECN0" | "ECN1"), ref counters @ ..] => {
                    let counters: Vec<u32> =
                        counters.iter().map(|it| self.number(it) as u32).collect();
                    let order = if kind == "ECN0" { EcnOrder::Zero } else { EcnOrder::One };
                    let counters = EcnCounters::new(order, &counters);
                    let sack = tcp::Blocks::NONE;
                    repr.options.extra = tcp::Counted { counters, sack }.into();
                }
                [kind @ ("FO" | "FOEXP"), ref cookie @ ..] => {
                    let cookie = cookie.first().map(|hex| self.cookie(hex));
                    let is_experimental = kind == "FOEXP";
                    repr.options.extra = tcp::FastOpen { cookie, is_experimental }.into();
                }
                ["sackOK"] => repr.options.sack_permitted = true,
                ["wscale", scale] => repr.options.window_scale = Some(self.number(scale) as u8),
                ["TS", "val", value, "ecr", echo] => {
                    let (value, echo) = (self.number(value) as u32, self.number(echo) as u32);
                    repr.options.timestamps = Some(tcp::Timestamps { value, echo });
                }
                _ => self.fail("an option"),
            }
        }
        let mut segment = vec![0; repr.length()];
        repr.emit(&mut segment);
        let first = start + u32::from(flags.contains(Flags::SYN));
        segment.extend((first..).take(length as usize).map(byte));
        let [here, there] = self.addresses;
        tcp::fill_checksum(&mut segment, sum(there, here));
        let mut packet = packet(there, here, protocol::TCP, &segment);
        mark(&mut packet, ecn);
        self.put(&packet);
    }

    fn cookie(&self, hex: &str) -> tcp::Cookie {
        tcp::Cookie::new(&hex_bytes(hex)).unwrap_or_else(|| self.fail("a cookie"))
    }

    fn put(&mut self, packet: &[u8]) {
        self.host.put_packet(packet);
    }

    /// An error about a segment of this host with that sequence number.
    fn icmp(&mut self, kind: &str, mtu: u32, sequence: u32) {
        let [here, there] = self.addresses;
        let repr = tcp::Repr {
            source_port: self.ports[0],
            destination_port: self.ports[1],
            sequence,
            ..tcp::Repr::default()
        };
        let mut quoted = vec![0; 1460];
        repr.emit(&mut quoted);
        let quote = packet(here, there, protocol::TCP, &quoted);
        let message = if here.is_ipv4() {
            let quote = &quote[..28];
            let message = match kind {
                "too_big" => icmpv4::Repr::FragmentationNeeded { mtu: mtu as u16, quote },
                "refused" => icmpv4::Repr::Unreachable { code: icmpv4::unreachable::PORT, quote },
                "protocol" => icmpv4::Repr::Unreachable { code: 2, quote },
                "prohibited" => icmpv4::Repr::Unreachable { code: 13, quote },
                "expired" => icmpv4::Repr::TimeExceeded { code: 0, quote },
                "incomplete" => icmpv4::Repr::TimeExceeded { code: icmpv4::REASSEMBLY, quote },
                _ => icmpv4::Repr::Unreachable { code: icmpv4::unreachable::HOST, quote },
            };
            let mut bytes = vec![0; message.length()];
            message.emit(&mut bytes);
            packet(there, here, protocol::ICMPV4, &bytes)
        } else {
            let quote = &quote[..48];
            let message = match kind {
                "too_big" => icmpv6::Repr::PacketTooBig { mtu, quote },
                "refused" => icmpv6::Repr::Unreachable { code: icmpv6::unreachable::PORT, quote },
                "prohibited" => icmpv6::Repr::Unreachable { code: 1, quote },
                "expired" => icmpv6::Repr::TimeExceeded { code: 0, quote },
                "incomplete" => icmpv6::Repr::TimeExceeded { code: icmpv6::REASSEMBLY, quote },
                "protocol" => {
                    let code = icmpv6::UNKNOWN_PROTOCOL;
                    icmpv6::Repr::ParameterProblem { code, pointer: 6, quote }
                }
                _ => icmpv6::Repr::Unreachable { code: icmpv6::unreachable::ADDRESS, quote },
            };
            let (IpAddr::V6(from), IpAddr::V6(to)) = (there, here) else { unreachable!() };
            let mut bytes = vec![0; message.length()];
            message.emit(&mut bytes, from, to);
            packet(there, here, protocol::ICMPV6, &bytes)
        };
        self.put(&message);
    }

    // Calls.

    #[track_caller]
    fn call_line(&mut self, line: &str) {
        let (call, expected) = match line.split_once('=') {
            Some((call, expected)) => (call.trim(), Some(expected.trim())),
            None => (line, None),
        };
        let words: Vec<&str> = call.split_whitespace().collect();
        let outcome = match words[..] {
            ["begin", ref call @ ..] => return self.begin(call),
            ["end"] => self.end(),
            ["waits"] => return self.expect_waiting(),
            ["icmp", kind, "seq", sequence] => {
                let sequence = self.number(sequence) as u32;
                return self.icmp(kind, 0, sequence);
            }
            ["icmp", kind, mtu, "seq", sequence] => {
                let (mtu, sequence) = (self.number(mtu) as u32, self.number(sequence) as u32);
                return self.icmp(kind, mtu, sequence);
            }
            ["set", name, value] => {
                let value = match value.strip_prefix("0x") {
                    Some(hex) => i64::from_str_radix(hex, 16).expect("hexadecimal digits"),
                    None => self.number(value),
                };
                return self.host.set(name, value).expect("a setting");
            }
            ["get", name] => self.host.get(name),
            ["ip", hop_limit, class] => {
                let expected = (self.number(hop_limit) as u8, self.number(class) as u8);
                if self.last_ip != expected {
                    self.fail(&format!("it is {:?}", self.last_ip));
                }
                return;
            }
            ["tcp_info", fd, field] => self.tcp_info(self.number(fd) as i32, field),
            ["peer", port] => {
                self.ports[1] = self.number(port) as u16;
                return;
            }
            ["local", port] => {
                self.ports[0] = self.number(port) as u16;
                return;
            }
            _ => self.prepare(&words)(),
        };
        let has = match outcome {
            Ok(value) => value.to_string(),
            Err(errno) => errno.to_string(),
        };
        if Some(has.as_str()) != expected {
            self.fail(&format!("it is {has}"));
        }
        if let (["close", fd], Ok(_)) = (&words[..], outcome) {
            let fd = self.number(fd) as i32;
            self.written.remove(&fd);
            self.read.remove(&fd);
        }
        if let (["read" | "recv", fd, ..], Ok(count)) = (&words[..], outcome)
            && !words.contains(&"peek")
        {
            let fd = self.number(fd) as i32;
            *self.read.entry(fd).or_insert(1) += count as u32;
        }
        if let (["write" | "send" | "sendto", fd, ..], Ok(count)) = (&words[..], outcome) {
            let fd = self.number(fd) as i32;
            *self.written.entry(fd).or_insert(1) += count as u32;
        }
    }

    fn tcp_info(&self, fd: i32, field: &str) -> Outcome {
        let (at, length) = match field {
            "state" => (0, 1),
            "ca_state" => (1, 1),
            "options" => (5, 1),
            "rcv_mss" => (20, 4),
            "unacked" => (24, 4),
            "sacked" => (28, 4),
            "lost" => (32, 4),
            "retrans" => (36, 4),
            "last_data_sent" => (44, 4),
            "last_data_recv" => (52, 4),
            "last_ack_recv" => (56, 4),
            "advmss" => (84, 4),
            "reordering" => (88, 4),
            "received_ce" => (248, 4),
            "delivered_e1_bytes" => (252, 4),
            "delivered_e0_bytes" => (256, 4),
            "delivered_ce_bytes" => (260, 4),
            "received_e1_bytes" => (264, 4),
            "received_e0_bytes" => (268, 4),
            "received_ce_bytes" => (272, 4),
            "data_segs_in" => (152, 4),
            "data_segs_out" => (156, 4),
            "busy_time" => (168, 8),
            "rwnd_limited" => (176, 8),
            "sndbuf_limited" => (184, 8),
            "delivered" => (192, 4),
            "delivered_ce" => (196, 4),
            "bytes_sent" => (200, 8),
            "bytes_retrans" => (208, 8),
            "snd_ssthresh" => (76, 4),
            "snd_cwnd" => (80, 4),
            "total_retrans" => (100, 4),
            other => self.fail(&format!("there is no field {other}")),
        };
        let mut place = [0; 512];
        self.host.getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut place)?;
        let bytes = place[at..at + length].iter().rev();
        Ok(bytes.fold(0, |value, byte| value << 8 | i64::from(*byte)))
    }

    fn begin(&mut self, call: &[&str]) {
        let work = self.prepare(call);
        let thread = std::thread::spawn(work);
        let start = Instant::now();
        while self.host.waiting() == 0 && !thread.is_finished() {
            assert!(start.elapsed() < PATIENCE, "at \"{}\": it does not come so far", self.line);
            std::thread::yield_now();
        }
        self.begun = Some(thread);
    }

    #[track_caller]
    fn end(&mut self) -> Outcome {
        if self.host.waiting() > 0 {
            self.fail("it still waits");
        }
        let thread = self.begun.take().unwrap_or_else(|| self.fail("nothing has begun"));
        thread.join().expect("no panic")
    }

    #[track_caller]
    fn expect_waiting(&self) {
        if self.host.waiting() == 0 {
            self.fail("it does not wait");
        }
    }

    /// A call, to be made here or in a thread of its own.
    fn prepare(&self, words: &[&str]) -> Box<dyn FnOnce() -> Outcome + Send> {
        let host = Arc::clone(&self.host);
        let name = words[0].to_owned();
        let text: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
        let number = |at: usize| text.get(at).and_then(|word| word.parse::<i64>().ok());
        let fd = number(0).unwrap_or(-1) as i32;
        let second = number(1).unwrap_or(0);
        let is_of_bytes = matches!(words[0], "read" | "recv" | "write" | "send" | "sendto");
        let before_flags = if words[0] == "sendto" { 3 } else { 2 };
        let words_of_flags = text.iter().skip(before_flags).filter(|_| is_of_bytes);
        let flags = words_of_flags.fold(0, |flags, word| flags | flag(word));
        let [here, there] = self.addresses;
        let any: IpAddr = match here {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let domain = if here.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let written = self.written.get(&fd).copied().unwrap_or(1);
        let read = self.read.get(&fd).copied().unwrap_or(1);
        let line = self.line.clone();
        Box::new(move || match name.as_str() {
            "socket" => host.socket(domain, libc::SOCK_STREAM, 0).map(i64::from),
            "nonblock" => host.fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK).map(i64::from),
            "block" => host.fcntl(fd, libc::F_SETFL, 0).map(i64::from),
            "bind" if text[1] == "any" => {
                let port = text[2].parse().expect("a port");
                host.bind(fd, &sockaddr(any, port)).map(|()| 0)
            }
            "bind" => host.bind(fd, &sockaddr(here, second as u16)).map(|()| 0),
            "listen" => host.listen(fd, second as i32).map(|()| 0),
            "accept" => host.accept(fd, 0).map(|(fd, _)| fd.into()),
            "connect" if text.get(1).is_some_and(|word| word == "nowhere") => {
                host.connect(fd, &[0; 16]).map(|()| 0)
            }
            "connect" => host.connect(fd, &sockaddr(there, second as u16)).map(|()| 0),
            "write" | "send" => {
                let bytes: Vec<u8> = (written..).take(second as usize).map(byte).collect();
                host.send(fd, &bytes, flags).map(|count| count as i64)
            }
            "sendto" => {
                let bytes: Vec<u8> = (written..).take(second as usize).map(byte).collect();
                let to = match text[2].as_str() {
                    "nowhere" => vec![0; 16],
                    port => sockaddr(there, port.parse().expect("a port")),
                };
                host.send_to(fd, &bytes, flags, Some(&to)).map(|count| count as i64)
            }
            "read" | "recv" => {
                let mut place = vec![0; second as usize];
                let count = host.recv(fd, &mut place, flags)?;
                if flags & libc::MSG_TRUNC == 0 {
                    let right = (read..).take(count).map(byte);
                    assert!(place[..count].iter().copied().eq(right), "at \"{line}\": {place:?}");
                }
                Ok(count as i64)
            }
            "shutdown" => {
                let how = match text[1].as_str() {
                    "rd" => libc::SHUT_RD,
                    "wr" => libc::SHUT_WR,
                    _ => libc::SHUT_RDWR,
                };
                host.shutdown(fd, Shutdown::from_number(how)?).map(|()| 0)
            }
            "close" => host.close(fd).map(|()| 0),
            "sockport" => host.getsockname(fd).map(|bytes| port_of(&bytes)),
            "peerport" => host.getpeername(fd).map(|bytes| port_of(&bytes)),
            "fionread" => host.ioctl(fd, libc::FIONREAD, 0).map(i64::from),
            "outq" => host.ioctl(fd, libc::TIOCOUTQ, 0).map(i64::from),
            "state" => host.info(fd).map(|info| i64::from(info.state.is(&text[1]))),
            "get_option" => {
                let (level, name) = option(&text[1]);
                let mut place = [0; 4];
                host.getsockopt(fd, level, name, &mut place)?;
                Ok(i32::from_ne_bytes(place).into())
            }
            "option" => {
                let (level, name) = option(&text[1]);
                let values = text[2..].iter().map(|word| word.parse::<i32>().expect("a number"));
                let bytes: Vec<u8> = values.flat_map(i32::to_ne_bytes).collect();
                host.setsockopt(fd, level, name, &bytes).map(|()| 0)
            }
            // Bytes instead of numbers.
            "option_bytes" => {
                let (level, name) = option(&text[1]);
                let bytes = text.get(2).map(|hex| hex_bytes(hex)).unwrap_or_default();
                host.setsockopt(fd, level, name, &bytes).map(|()| 0)
            }
            "timeout" => {
                let name = if text[1] == "rcv" { libc::SO_RCVTIMEO } else { libc::SO_SNDTIMEO };
                let ms: i64 = text[2].parse().expect("ms");
                let words = [ms / 1000, ms % 1000 * 1000];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                host.setsockopt(fd, libc::SOL_SOCKET, name, &bytes).map(|()| 0)
            }
            // The events as letters: in, out, rdhup, hup, error.
            "poll" => {
                let asked = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
                let mut polled = [Polled { fd, events: asked, revents: 0 }];
                host.poll(&mut polled, 0)?;
                Ok(polled[0].revents.into())
            }
            "wait_in" => {
                let mut polled = [Polled { fd, events: libc::POLLIN, revents: 0 }];
                host.poll(&mut polled, second).map(|count| count as i64)
            }
            "epoll_create" => host.epoll_create().map(i64::from),
            "epoll_add" => {
                let events = text[2..].iter().fold(0, |events, word| events | event(word));
                let event = Epolled { events, data: second as u64 };
                host.epoll_ctl(fd, libc::EPOLL_CTL_ADD, second as i32, event).map(|()| 0)
            }
            "epoll_mod" => {
                let events = text[2..].iter().fold(0, |events, word| events | event(word));
                let event = Epolled { events, data: second as u64 };
                host.epoll_ctl(fd, libc::EPOLL_CTL_MOD, second as i32, event).map(|()| 0)
            }
            "epoll_del" => {
                let event = Epolled { events: 0, data: 0 };
                host.epoll_ctl(fd, libc::EPOLL_CTL_DEL, second as i32, event).map(|()| 0)
            }
            // The events of the first that is told, 0 if none is.
            "epoll_wait" => {
                let told = host.epoll_wait(fd, 1, second)?;
                Ok(told.first().map_or(0, |told| told.events.into()))
            }
            other => panic!("at \"{line}\": there is no call {other}"),
        })
    }
}

trait Named {
    fn is(self, name: &str) -> bool;
}

impl Named for lab::State {
    fn is(self, name: &str) -> bool {
        assert!(self.name() == name, "it is {}", self.name());
        true
    }
}

fn show_fast_open(option: tcp::FastOpen) -> String {
    let kind = if option.is_experimental { "FOEXP" } else { "FO" };
    option.cookie.map_or(kind.to_owned(), |cookie| format!("{kind} {cookie:?}"))
}

fn hex_bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn flag(word: &str) -> i32 {
    match word {
        "peek" => libc::MSG_PEEK,
        "waitall" => libc::MSG_WAITALL,
        "dontwait" => libc::MSG_DONTWAIT,
        "more" => libc::MSG_MORE,
        "eor" => libc::MSG_EOR,
        "trunc" => libc::MSG_TRUNC,
        "oob" => libc::MSG_OOB,
        "fastopen" => libc::MSG_FASTOPEN,
        other => panic!("there is no flag {other}"),
    }
}

fn event(word: &str) -> u32 {
    (match word {
        "in" => libc::EPOLLIN,
        "out" => libc::EPOLLOUT,
        "edge" => libc::EPOLLET,
        "once" => libc::EPOLLONESHOT,
        other => panic!("there is no event {other}"),
    }) as u32
}

fn option(word: &str) -> (i32, i32) {
    let socket = [
        ("reuseaddr", libc::SO_REUSEADDR),
        ("reuseport", libc::SO_REUSEPORT),
        ("keepalive", libc::SO_KEEPALIVE),
        ("linger", libc::SO_LINGER),
        ("rcvbuf", libc::SO_RCVBUF),
        ("sndbuf", libc::SO_SNDBUF),
        ("rcvlowat", libc::SO_RCVLOWAT),
        ("error", libc::SO_ERROR),
        ("acceptconn", libc::SO_ACCEPTCONN),
        ("type", libc::SO_TYPE),
    ];
    let tcp = [
        ("nodelay", libc::TCP_NODELAY),
        ("cork", libc::TCP_CORK),
        ("maxseg", libc::TCP_MAXSEG),
        ("keepidle", libc::TCP_KEEPIDLE),
        ("keepintvl", libc::TCP_KEEPINTVL),
        ("keepcnt", libc::TCP_KEEPCNT),
        ("keepinit", 128), // TCP_KEEPINIT of FreeBSD
        ("noopt", 8),      // TCP_NOOPT of FreeBSD
        ("user_timeout", libc::TCP_USER_TIMEOUT),
        ("syncnt", libc::TCP_SYNCNT),
        ("linger2", libc::TCP_LINGER2),
        ("defer_accept", libc::TCP_DEFER_ACCEPT),
        ("quickack", libc::TCP_QUICKACK),
        ("notsent_lowat", libc::TCP_NOTSENT_LOWAT),
        ("nodelayed", 1000), // there is no such option
        ("fastopen", libc::TCP_FASTOPEN),
        ("fastopen_connect", libc::TCP_FASTOPEN_CONNECT),
        ("fastopen_key", 33),       // TCP_FASTOPEN_KEY
        ("fastopen_no_cookie", 34), // TCP_FASTOPEN_NO_COOKIE
    ];
    let find = |level, options: &[(&str, i32)]| {
        options.iter().find(|(name, _)| *name == word).map(|(_, name)| (level, *name))
    };
    let found = find(libc::SOL_SOCKET, &socket).or_else(|| find(libc::IPPROTO_TCP, &tcp));
    match word {
        "v6only" => (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
        "tos" => (libc::IPPROTO_IP, libc::IP_TOS),
        "ttl" => (libc::IPPROTO_IP, libc::IP_TTL),
        "tclass" => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        "hops" => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        _ => found.unwrap_or_else(|| panic!("there is no option {word}")),
    }
}

/// A `sockaddr_in` or `sockaddr_in6`.
pub(crate) fn sockaddr(address: IpAddr, port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    match address {
        IpAddr::V4(address) => {
            bytes.extend((libc::AF_INET as u16).to_ne_bytes());
            bytes.extend(port.to_be_bytes());
            bytes.extend(address.octets());
            bytes.resize(16, 0);
        }
        IpAddr::V6(address) => {
            bytes.extend((libc::AF_INET6 as u16).to_ne_bytes());
            bytes.extend(port.to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(address.octets());
            bytes.resize(28, 0);
        }
    }
    bytes
}

fn port_of(sockaddr: &[u8]) -> i64 {
    u16::from_be_bytes([sockaddr[2], sockaddr[3]]).into()
}

fn sum(from: IpAddr, to: IpAddr) -> clearway_wire::checksum::Sum {
    let with = |sum: clearway_wire::checksum::Sum, address| match address {
        IpAddr::V4(address) => sum.with(&Ipv4Addr::octets(&address)),
        IpAddr::V6(address) => sum.with(&Ipv6Addr::octets(&address)),
    };
    with(with(clearway_wire::checksum::Sum::new(), from), to)
}

fn packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let payload_length = payload.len() as u16;
    let hop_limit = 64;
    let mut bytes = match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
            let mut bytes = vec![0; ip.length()];
            ip.emit(&mut bytes);
            bytes
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
            let mut bytes = vec![0; ip.length()];
            ip.emit(&mut bytes);
            bytes
        }
        _ => panic!("two families"),
    };
    bytes.extend_from_slice(payload);
    bytes
}

/// Says so of congestion in an IP header.
fn mark(packet: &mut [u8], ecn: u8) {
    if packet[0] >> 4 == 6 {
        packet[1] |= ecn << 4;
        return;
    }
    packet[1] |= ecn;
    packet[10..12].fill(0);
    let checksum = clearway_wire::checksum::Sum::new().with(&packet[..20]).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn show_counters(counters: &EcnCounters) -> String {
    let order = u8::from(counters.order() == EcnOrder::One);
    let values: String = counters.iter().map(|(_, value)| format!(" {value}")).collect();
    format!("ECN{order}{values}")
}

/// Tests, each what it is about, where it begins, and a script.
macro_rules! cases {
    ($($(#[doc = $sentence:literal])* $name:ident: $begin:expr => $script:literal;)+) => {
        $($(#[doc = $sentence])* #[test] fn $name() {
            $begin.play($script);
        })+
    };
}

pub(crate) use cases;
