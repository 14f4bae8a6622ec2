//! Scripts against one stack: a line per segment, much as packetdrill has them.
//!
//! ```text
//! < S 0:0(0) win 1000 <mss 1460>      this segment comes; numbers are from each side's first on
//! > S. 0:0(0) ack 1 <mss 1460>        this one leaves; options and window are compared if there
//! +0.2 > . 1:1001(1000) ack 1         ... 0.2 s after what stands before, within a millisecond
//! +1 < . 1:1(0) ack 1001 win 1000     time passes, in which nothing leaves; then this comes
//! +3                                  time passes, in which nothing leaves
//! < [ce] P. 1:11(10) ack 1            the packet was marked; `> [ect]` one that may be; `< [ect1]`
//! > . 1:1(0) ack 11 <ECN1 1 10 1>     ... and counted: AccECN1, with ECT(1), CE, ECT(0)
//! send 1000                           the app's calls: connect, listen, accept, send, recv,
//!                                     release, shutdown, close, abort; `fails` in front: refused
//! connect 1000                        the same, with so many bytes before the SYN has left
//! state ESTAB                         the state, as `ss` writes it; `end Reset`: why there is none
//! icmp too_big 1000 seq 1             an ICMP error about a segment
//! set no_delay                        see `Script::set`
//! peer 5001                           the peer is at another port; `<FO right>`: its right cookie
//! room 1000                           segments of so many bytes find room where they go
//! window 10000                        the congestion window in bytes
//! ```
//!
//! Every segment that leaves has to stand in the script. `//` begins a comment; `;` ends a line,
//! too.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use clearway_base::{MILLISECOND, SECOND, SlotId, Time};
use clearway_wire::Ecn;
use clearway_wire::tcp::{
    self, Blocks, Cookie, Counted, EcnCounters, EcnOrder, Extra, FastOpen, Flags, Options,
    SackBlocks, Timestamps,
};

use super::world::{Host, Packet};
use crate::*;

/// The peer's first sequence number.
const PEER_ISN: u32 = 0xffff_f000;
/// What the listener's cookies are made with.
const RIGHT: FastOpenKeys = FastOpenKeys { current: [7; 16], previous: Some([6; 16]) };
const TOLERANCE_NS: u64 = MILLISECOND;

/// What the byte at a place of a stream is.
pub(super) const fn byte(at: u32) -> u8 {
    (at ^ (at >> 8)) as u8
}

/// The counters of accurate feedback, in the order that they stand in.
fn show_counters(counters: &EcnCounters) -> String {
    let order = u8::from(counters.order() == EcnOrder::One);
    let values: String = counters.iter().map(|(_, value)| format!(" {value}")).collect();
    format!("ECN{order}{values}")
}

/// A stack, the time, and what the script has seen of its peer.
pub(super) struct Script {
    pub(super) host: Host,
    pub(super) now: Time,
    peer: SocketAddr,
    pub(super) settings: Settings,
    listener: Option<Listener>,
    pub(super) key: Option<SlotId>,
    /// This side's first sequence number, and what its timestamps are ahead of the script's.
    pub(super) isn: Option<u32>,
    clock: Option<u32>,
    /// The same by ports of the peer.
    isns: BTreeMap<u16, u32>,
    sent: VecDeque<(Time, Packet)>,
    given: u32,
    read: u32,
    line: String,
}

impl Script {
    /// A stack without connections, and settings without any options.
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(super) fn with(config: Config) -> Self {
        let now = Time::from_ns(1000 * SECOND);
        let mut host = Host::new(config, "10.0.0.1:80".parse().expect("address"), now);
        host.stack.set_fast_open_keys(RIGHT);
        Self {
            host,
            now,
            peer: "10.0.0.2:5000".parse().expect("address"),
            settings: Settings {
                receive_buffer_bytes: 10_000,
                receive_buffer_bytes_max: 0,
                sack: false,
                timestamps: false,
                window_scaling: false,
                quick_acks: 0,
                ..Settings::default()
            },
            listener: None,
            key: None,
            isn: None,
            clock: None,
            isns: BTreeMap::new(),
            sent: VecDeque::new(),
            given: 1,
            read: 1,
            line: String::new(),
        }
    }

    /// Plays the lines of `script`.
    pub(super) fn play(mut self, script: &str) -> Self {
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

    fn step(&mut self, line: &str) {
        let (delay, rest) = match line.strip_prefix('+') {
            Some(line) => {
                let (delay, rest) = line.split_once(' ').unwrap_or((line, ""));
                let seconds: f64 = delay.parse().unwrap_or_else(|_| self.fail("a time"));
                (Some((seconds * SECOND as f64) as u64), rest.trim())
            }
            None => (None, line),
        };
        if let Some(expected) = rest.strip_prefix("> ") {
            return self.expect(delay, expected);
        }
        self.expect_silence();
        if let Some(delay_ns) = delay {
            self.advance(self.now + delay_ns, false);
            self.expect_silence();
        }
        match rest.strip_prefix("< ") {
            Some(segment) => self.inject(segment),
            None if rest.is_empty() => {}
            None => self.call(rest),
        }
        self.collect();
    }

    fn fail(&self, why: &str) -> ! {
        let info = self.key.and_then(|key| self.host.stack.info(key));
        panic!("at \"{}\": {why}\n{info:?}", self.line);
    }

    fn collect(&mut self) {
        for packet in self.host.transmit(self.now) {
            self.sent.push_back((self.now, packet));
        }
    }

    fn expect_silence(&mut self) {
        if let Some((_, packet)) = self.sent.pop_front() {
            let shown = self.show(&packet);
            self.fail(&format!("sent but not in the script: {shown}"));
        }
    }

    /// Lets time pass until `end`, or, if `once`, until something is sent.
    fn advance(&mut self, end: Time, once: bool) {
        loop {
            let next = self.host.stack.next_timeout();
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.host.stack.handle_timeouts(self.now);
            self.collect();
            if once && !self.sent.is_empty() {
                return;
            }
        }
        self.now = self.now.max(end);
    }

    // Segments that leave.

    fn expect(&mut self, delay: Option<u64>, expected: &str) {
        let due = self.now + delay.unwrap_or(0);
        if self.sent.is_empty() && delay.is_some() {
            self.advance(due + TOLERANCE_NS, true);
        }
        let Some((at, packet)) = self.sent.pop_front() else {
            self.fail("nothing is sent");
        };
        if at > due + TOLERANCE_NS || (delay.is_some() && at + TOLERANCE_NS < due) {
            let late = at.as_ns() as f64 - due.as_ns() as f64;
            self.fail(&format!("it is sent {} s later than that", late / SECOND as f64));
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
        if has != expected || options.is_some_and(|options| options != has_options) {
            self.fail(&format!("it is {shown}"));
        }
        let view = tcp::View::new(&packet.bytes).expect("whole");
        let first = self.relative(view.sequence()) + u32::from(view.flags().contains(Flags::SYN));
        for (at, has) in (first..).zip(view.payload()) {
            assert_eq!(*has, byte(at), "at \"{}\": the byte at {at}", self.line);
        }
    }

    fn relative(&self, sequence: u32) -> u32 {
        sequence.wrapping_sub(self.isn.unwrap_or(0))
    }

    /// A segment of this side as a line.
    fn show(&mut self, packet: &Packet) -> String {
        let view = tcp::View::new(&packet.bytes).expect("whole");
        let repr = tcp::Repr::parse(&view, tcp::Check::Skip).expect("valid");
        if repr.flags.contains(Flags::SYN) && self.isn.is_none() {
            self.isn = Some(repr.sequence);
        }
        if let Some(timestamps) = repr.options.timestamps {
            let elapsed = ((self.now.as_ns() / MILLISECOND) as u32).wrapping_sub(1_000_000);
            self.clock.get_or_insert(timestamps.value.wrapping_sub(elapsed).wrapping_sub(1000));
        }
        // The numbers of resets to segments of nothing are the peer's own.
        let sequence =
            if self.isn.is_none() { repr.sequence } else { self.relative(repr.sequence) };
        let length = view.payload().len() as u32;
        let ecn = if packet.ecn == Ecn::Capable { "[ect] " } else { "" };
        let end = sequence.wrapping_add(length);
        let mut line = format!("{ecn}{} {sequence}:{end}({length})", repr.flags);
        if repr.flags.contains(Flags::ACK) {
            line += &format!(" ack {}", repr.acknowledgement.wrapping_sub(PEER_ISN));
        }
        format!("{line} win {} <{}>", repr.window, self.show_options(&repr.options))
    }

    fn show_options(&self, options: &Options) -> String {
        let mut shown = Vec::new();
        if let Some(bytes) = options.maximum_segment_size {
            shown.push(format!("mss {bytes}"));
        }
        if options.sack_permitted {
            shown.push("sackOK".to_owned());
        }
        if let Some(timestamps) = options.timestamps {
            let value = timestamps.value.wrapping_sub(self.clock.unwrap_or(0));
            shown.push(format!("TS val {value} ecr {}", timestamps.echo));
        }
        if let Some(scale) = options.window_scale {
            shown.push(format!("wscale {scale}"));
        }
        let blocks: Vec<String> = options
            .sack()
            .iter()
            .map(|(left, right)| {
                format!("{}:{}", left.wrapping_sub(PEER_ISN), right.wrapping_sub(PEER_ISN))
            })
            .collect();
        shown.extend(options.counters().map(show_counters));
        if !blocks.is_empty() {
            shown.push(format!("sack {}", blocks.join(" ")));
        }
        shown.extend(options.fast_open().map(|option| self.show_fast_open(option)));
        shown.join(",")
    }

    fn show_fast_open(&self, option: FastOpen) -> String {
        let kind = if option.is_experimental { "FOEXP" } else { "FO" };
        match option.cookie {
            None => kind.to_owned(),
            Some(cookie) if cookie == self.cookie("right") => format!("{kind} right"),
            Some(cookie) => format!("{kind} {cookie:?}"),
        }
    }

    // Segments that come.

    fn inject(&mut self, line: &str) {
        let (head, options) = line.split_once('<').unwrap_or((line, ""));
        let mut words: VecDeque<&str> = head.split_whitespace().collect();
        let mut ecn = Ecn::NotCapable;
        if let Some(mark) = words.front().filter(|word| word.starts_with('[')) {
            ecn = match *mark {
                "[ce]" => Ecn::Marked,
                "[ect1]" => Ecn::CapableOne,
                _ => Ecn::Capable,
            };
            words.pop_front();
        }
        let flags = words.pop_front().unwrap_or_else(|| self.fail("flags"));
        let flags =
            flags.chars().filter(|letter| *letter != '0').fold(Flags::NONE, |flags, letter| {
                flags | Flags::from_letter(letter).unwrap_or_else(|| self.fail("a flag"))
            });
        let range = words.pop_front().unwrap_or_else(|| self.fail("a range"));
        let (start, rest) = range.split_once(':').unwrap_or_else(|| self.fail("a range"));
        let (_, length) = rest.split_once('(').unwrap_or_else(|| self.fail("a length"));
        let start = self.number(start);
        let length = self.number(length.trim_end_matches(')'));
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            Some(self.number(words[at + 1]))
        };
        let (ack, window, urgent) = (value("ack"), value("win"), value("urg"));
        let first = start.wrapping_add(flags.contains(Flags::SYN).into());
        let bytes: Vec<u8> = (0..length).map(|at| byte(first.wrapping_add(at))).collect();
        let repr = tcp::Repr {
            source_port: self.peer.port(),
            destination_port: self.host.address.port(),
            sequence: PEER_ISN.wrapping_add(start),
            acknowledgement: ack.map_or(0, |ack| self.isn.unwrap_or(0).wrapping_add(ack)),
            flags,
            window: window.unwrap_or(10_000) as u16,
            urgent: urgent.unwrap_or(0) as u16,
            options: self.options(options.trim_end_matches('>')),
        };
        let mut packet = vec![0; repr.length()];
        repr.emit(&mut packet);
        packet.extend(bytes);
        let (from, to) = (self.peer, self.host.address);
        self.host.receive(self.now, &Packet { from, to, bytes: packet, ecn });
    }

    fn number(&self, word: &str) -> u32 {
        let number: i64 = word.parse().unwrap_or_else(|_| self.fail("a number"));
        number as u32
    }

    fn options(&self, text: &str) -> Options {
        let mut options = Options::default();
        for option in text.split(',').map(str::trim) {
            let words: Vec<&str> = option.split_whitespace().collect();
            match words[..] {
                [] | ["nop"] => {}
                ["mss", bytes] => options.maximum_segment_size = Some(self.number(bytes) as u16),
                ["wscale", scale] => options.window_scale = Some(self.number(scale) as u8),
                ["sackOK"] => options.sack_permitted = true,
                ["TS", "val", value, "ecr", echo] => {
                    let echo = match self.number(echo) {
                        0 => 0,
                        echo => echo.wrapping_add(self.clock.unwrap_or(0)),
                    };
                    options.timestamps = Some(Timestamps { value: self.number(value), echo });
                }
                [kind @ ("FO" | "FOEXP"), ref cookie @ ..] => {
                    let cookie = cookie.first().map(|hex| self.cookie(hex));
                    let is_experimental = kind == "FOEXP";
                    options.extra = FastOpen { cookie, is_experimental }.into();
                }
                ["sack", ref blocks @ ..] => match &mut options.extra {
                    Extra::Counted(counted) => counted.sack = Blocks::of(&self.blocks(blocks)),
                    extra => *extra = self.blocks(blocks).into(),
                },
                [kind @ ("ECN0" | "ECN1"), ref counters @ ..] => {
                    let order = if kind == "ECN0" { EcnOrder::Zero } else { EcnOrder::One };
                    let counters: Vec<u32> = counters.iter().map(|it| self.number(it)).collect();
                    let counters = EcnCounters::new(order, &counters);
                    options.extra = Counted { counters, ..Counted::default() }.into();
                }
                _ => self.fail("an option"),
            }
        }
        options
    }

    /// `right` is the one that the listener gives to the peer.
    fn cookie(&self, hex: &str) -> Cookie {
        if hex == "right" {
            return RIGHT.cookie(Some(self.host.address.ip()), self.peer.ip());
        }
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
        let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().expect("hexadecimal digits");
        Cookie::new(&bytes).unwrap_or_else(|| self.fail("a cookie"))
    }

    fn blocks(&self, blocks: &[&str]) -> SackBlocks {
        let isn = self.isn.unwrap_or(0);
        let mut sack = SackBlocks::default();
        for block in blocks {
            let (left, right) = block.split_once(':').unwrap_or_else(|| self.fail("a block"));
            let edge = |number: &str| isn.wrapping_add(self.number(number));
            sack.push(edge(left), edge(right));
        }
        sack
    }

    // What the app does.

    fn call(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (fails, words) = match words.split_first() {
            Some((&"fails", rest)) => (true, rest),
            _ => (false, &words[..]),
        };
        let outcome = self.call_words(words);
        if outcome.is_err() != fails {
            self.fail(&format!("{outcome:?}"));
        }
    }

    fn call_words(&mut self, words: &[&str]) -> Result<(), String> {
        let (now, settings) = (self.now, self.settings);
        let stack = &mut self.host.stack;
        let say = |error: Error| error.to_string();
        match *words {
            ["listen"] => {
                let port = self.host.address.port();
                self.listener = Some(stack.listen(None, port, 2, 1500, settings).map_err(say)?);
            }
            ["unlisten"] => {
                let listener = self.listener.take().ok_or("no listener")?;
                stack.unlisten(now, listener, &mut self.host.store);
            }
            ["connect"] => self.connect(0)?,
            ["in_use"] => match self.connect(0) {
                Err(error) if error == Error::InUse.to_string() => {}
                outcome => return Err(format!("connect: {outcome:?}")),
            },
            ["connect", count] => self.connect(self.number(count))?,
            ["accept"] => {
                let listener = self.listener.ok_or("no listener")?;
                self.key = Some(stack.accept(listener).ok_or("nothing to accept")?);
            }
            ["send", count] => self.send(self.number(count))?,
            ["recv", count] => self.receive(count, true)?,
            ["take", count] => self.receive(count, false)?,
            ["release", count] => {
                let (key, count) = (self.key()?, self.number(count));
                self.host.stack.release(key, count.into());
            }
            ["peer", port] => {
                let port = self.number(port) as u16;
                self.isns.extend(self.isn.map(|isn| (self.peer.port(), isn)));
                self.peer.set_port(port);
                self.isn = self.isns.get(&port).copied();
            }
            ["shutdown"] => self.host.stack.shutdown(self.key.ok_or("no connection")?),
            ["close"] => self.host.stack.close(now, self.key.ok_or("no connection")?),
            ["renege"] => {
                let key = self.key.ok_or("no connection")?;
                self.host.stack.renege(key, &mut self.host.store);
            }
            ["abort"] => self.host.stack.abort(now, self.key.ok_or("no connection")?),
            ["icmp", error, "seq", sequence] => self.icmp(error, 0, sequence)?,
            ["icmp", error, mtu, "seq", sequence] => {
                let mtu = self.number(mtu);
                self.icmp(error, mtu, sequence)?;
            }
            ["set", name] => self.set(name, true)?,
            ["unset", name] => self.set(name, false)?,
            ["room", bytes] => {
                self.host.room = self.number(bytes);
                let key = self.key()?;
                self.host.stack.ask_again(key);
            }
            _ => self.check(words)?,
        }
        Ok(())
    }

    /// Connects, and has so many bytes ready before the SYN leaves.
    fn connect(&mut self, count: u32) -> Result<(), String> {
        let (now, settings) = (self.now, self.settings);
        (self.isn, self.clock, self.given, self.read) = (None, None, 1, 1);
        let key = self.host.stack.connect(now, self.host.address, self.peer, 1500, settings);
        self.key = Some(key.map_err(|error| error.to_string())?);
        if count > 0 { self.send(count) } else { Ok(()) }
    }

    fn send(&mut self, count: u32) -> Result<(), String> {
        let bytes: Vec<u8> = (self.given..self.given + count).map(byte).collect();
        let extent = self.host.store.fill(&bytes);
        let key = self.key()?;
        self.host.stack.send(key, extent).map_err(|error| error.to_string())?;
        self.given += count;
        Ok(())
    }

    fn key(&self) -> Result<SlotId, String> {
        self.key.ok_or_else(|| "no connection".to_owned())
    }

    /// The app takes exactly so many bytes, which are the right ones.
    fn receive(&mut self, count: &str, release: bool) -> Result<(), String> {
        let (key, count) = (self.key()?, self.number(count));
        let mut bytes = Vec::new();
        while bytes.len() < count as usize
            && let Some(extent) = self.host.stack.recv(key)
        {
            bytes.extend(self.host.store.take(extent));
        }
        if bytes.len() != count as usize
            || !bytes.iter().copied().eq((self.read..).take(bytes.len()).map(byte))
        {
            return Err(format!("{} bytes, or wrong ones", bytes.len()));
        }
        self.read += count;
        if release {
            self.host.stack.release(key, count.into());
        }
        Ok(())
    }

    fn icmp(&mut self, error: &str, mtu: u32, sequence: &str) -> Result<(), String> {
        let error = match error {
            "too_big" => IcmpError::TooBig(mtu),
            "refused" => IcmpError::Refused,
            "unreachable" => IcmpError::Unreachable,
            "prohibited" => IcmpError::Prohibited,
            _ => return Err("an error".to_owned()),
        };
        let sequence = self.isn.unwrap_or(0).wrapping_add(self.number(sequence));
        let (local, remote) = (self.host.address, self.peer);
        self.host.stack.handle_icmp(self.now, error, local, remote, sequence);
        Ok(())
    }

    /// Changes a setting, of the connection if there is one.
    fn set(&mut self, name: &str, on: bool) -> Result<(), String> {
        let settings = &mut self.settings;
        let number = || name.split('=').nth(1).and_then(|number| number.parse::<u64>().ok());
        match name.split('=').next().unwrap_or_default() {
            "no_delay" => settings.no_delay = on,
            "cork" => settings.cork = on,
            "fast_open" => settings.fast_open.connects = on,
            "pending" => settings.fast_open.pending_max = number().ok_or("a number")? as u16,
            "without_cookies" => settings.fast_open.without_cookies = on,
            "sack" => settings.sack = on,
            "timestamps" => settings.timestamps = on,
            "window_scaling" => settings.window_scaling = on,
            "ecn" => settings.ecn = on,
            "accurate_ecn" => settings.accurate_ecn = on,
            "draft_accurate_ecn" => settings.variants.draft_accurate_ecn = on,
            "untested_ecn" => settings.variants.untested_ecn = on,
            "ecn_option" => {
                settings.ecn_option = match number() {
                    Some(0) => EcnOption::Never,
                    Some(1) => EcnOption::WhenChanged,
                    Some(2) => EcnOption::Always,
                    _ => EcnOption::DespiteLoss,
                };
            }
            "lax_ecn" => settings.variants.lax_ecn = on,
            "linear_syns" => settings.variants.linear_syns = number().ok_or("a number")? as u8,
            "pacing" => settings.pacing = on,
            "mss" => settings.segment_bytes_max = number().map(|bytes| bytes as u16),
            "buffer" => settings.receive_buffer_bytes = number().ok_or("a number")? as u32,
            "rto_min_ms" => settings.rto_min_ns = number().ok_or("a number")? * MILLISECOND,
            "buffer_max" => {
                settings.receive_buffer_bytes_max = number().ok_or("a number")? as u32;
            }
            "quick" => settings.quick_acks = number().ok_or("a number")? as u8,
            "defer" => settings.defer_accept = number().ok_or("a number")? as u8,
            "retries" => settings.retries = number().ok_or("a number")? as u8,
            "user_timeout_ms" => {
                settings.user_timeout_ns = number().map(|ms| ms * MILLISECOND);
            }
            "keep_alive_s" => {
                let idle_ns = number().ok_or("a number")? * SECOND;
                let (interval_ns, probes) = (10 * SECOND, 3);
                settings.keep_alive = on.then_some(KeepAlive { idle_ns, interval_ns, probes });
            }
            _ => return Err("a setting".to_owned()),
        }
        if let Some(key) = self.key {
            self.host.stack.set_settings(key, self.settings);
        }
        Ok(())
    }

    fn check(&self, words: &[&str]) -> Result<(), String> {
        let (half_open, waiting) = self.host.stack.waiting();
        let counts = [("half_open", half_open), ("waiting", waiting)];
        if let Some((_, count)) = counts.iter().find(|(name, _)| *name == words[0]) {
            let is_right = words.get(1) == Some(&count.to_string().as_str());
            return if is_right { Ok(()) } else { Err(format!("it is {count}")) };
        }
        let info = self.host.stack.info(self.key()?).ok_or("it is gone")?;
        let (has, expected) = match *words {
            ["state", state] => (info.state.name().to_owned(), state),
            ["end", end] => (info.end.map_or("None".to_owned(), |end| format!("{end:?}")), end),
            ["window", bytes] => (info.window_bytes.to_string(), bytes),
            ["in_flight", bytes] => (info.in_flight_bytes.to_string(), bytes),
            ["segment", bytes] => (info.segment_bytes.to_string(), bytes),
            ["peer_window", bytes] => (info.send_window_bytes.to_string(), bytes),
            ["unread", bytes] => (info.unread_bytes.to_string(), bytes),
            ["recovery", phase] => (info.recovery.to_owned(), phase),
            ["rto_ms", ms] => ((info.rto_ns / MILLISECOND).to_string(), ms),
            ["marks_told", count] => (info.marks.1.to_string(), count),
            ["bytes_told", bytes] => {
                (info.marked_bytes.1.map(|it| it.to_string()).join(","), bytes)
            }
            ["syn_data", is] => (info.syn_had_data.to_string(), is),
            ["room", bytes] => (self.host.stack.syn_room(self.key()?).to_string(), bytes),
            ["rtt_ms", ms] => ((info.rtt_ns / MILLISECOND).to_string(), ms),
            _ => return Err("what is that?".to_owned()),
        };
        if has == expected { Ok(()) } else { Err(format!("it is {has}")) }
    }
}

/// Tests, each a sentence of an RFC, where it begins, and a script.
macro_rules! cases {
    ($($(#[doc = $sentence:literal])+ $name:ident: $begin:expr => $script:literal;)+) => {
        $($(#[doc = $sentence])+ #[test] fn $name() {
            $begin.play($script);
        })+
    };
}

pub(super) use cases;

/// Stacks in each state, with a peer whose next number is 1 and to which nothing is owed. The
/// peer's window is 10000, segments have 1000 bytes.
pub(super) mod begin {
    use super::Script;

    const HANDSHAKE: &str = "
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 win 10000
        accept; state ESTAB";

    pub(in crate::tests) fn closed() -> Script {
        Script::new()
    }

    pub(in crate::tests) fn listening() -> Script {
        Script::new().play("listen")
    }

    pub(in crate::tests) fn syn_sent() -> Script {
        Script::new().play("connect; > S 0:0(0); state SYN-SENT")
    }

    pub(in crate::tests) fn half_open() -> Script {
        listening().play("< S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1")
    }

    /// After a simultaneous open.
    pub(in crate::tests) fn syn_received() -> Script {
        syn_sent().play("< S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1; state SYN-RECV")
    }

    pub(in crate::tests) fn established() -> Script {
        listening().play(HANDSHAKE)
    }

    /// With settings, separated by spaces, and options of the peer's SYN.
    pub(in crate::tests) fn established_with(set: &str, options: &str) -> Script {
        let set: String = set.split_whitespace().map(|name| format!("set {name};")).collect();
        let timestamps = if options.contains("TS") { "<TS val 100 ecr 1000>" } else { "" };
        Script::new().play(&format!(
            "{set} listen
             < S 0:0(0) win 10000 <{options}>
             > S. 0:0(0) ack 1
             < . 1:1(0) ack 1 win 10000 {timestamps}
             accept; state ESTAB"
        ))
    }

    /// With timestamps; the peer's next is 101 or later.
    pub(in crate::tests) fn with_timestamps() -> Script {
        established_with("timestamps", "mss 1000,TS val 100 ecr 0")
    }

    /// Over a path of 100 ms, with selective acknowledgements and a window of 60000; this end has
    /// connected.
    pub(in crate::tests) fn far_away() -> Script {
        Script::new().play(
            "set sack; connect
             > S 0:0(0)
             +0.1 < S. 0:0(0) ack 1 win 60000 <mss 1000,sackOK>
             > . 1:1(0) ack 1
             state ESTAB; rtt_ms 100",
        )
    }

    pub(in crate::tests) fn fin_wait_1() -> Script {
        established().play("shutdown; > F. 1:1(0) ack 1; state FIN-WAIT-1")
    }

    pub(in crate::tests) fn fin_wait_2() -> Script {
        fin_wait_1().play("< . 1:1(0) ack 2; state FIN-WAIT-2")
    }

    pub(in crate::tests) fn close_wait() -> Script {
        established().play("< F. 1:1(0) ack 1; > . 1:1(0) ack 2; state CLOSE-WAIT")
    }

    pub(in crate::tests) fn closing() -> Script {
        fin_wait_1().play("< F. 1:1(0) ack 1; > . 2:2(0) ack 2; state CLOSING")
    }

    pub(in crate::tests) fn last_ack() -> Script {
        close_wait().play("shutdown; > F. 1:1(0) ack 2; state LAST-ACK")
    }

    pub(in crate::tests) fn time_wait() -> Script {
        fin_wait_2().play("< F. 1:1(0) ack 2; > . 2:2(0) ack 2; state TIME-WAIT; waiting 1")
    }
}
