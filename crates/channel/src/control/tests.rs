use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use proptest::prelude::*;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::*;

fn sockets() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn requests() -> Vec<Request> {
    vec![
        Request::Attach(Attach::new("echo", Some("eth0/1".into()), Sizes::default())),
        Request::Attach(Attach { exclusive: true, ..Attach::new("echo", None, Sizes::default()) }),
        Request::Listen(Listen { address: None, port: 7 }),
        Request::Listen(Listen { address: Some("10.0.0.1".parse().unwrap()), port: 0 }),
        Request::Unlisten(Unlisten { listener: 3 }),
        Request::Status(Empty {}),
        Request::Ping(ping()),
        Request::OpenVif(OpenVif { receive: vec!["udp dst port 5353".into()], ..open_vif() }),
        Request::OpenTcpPort(OpenTcpPort {
            port: 7,
            shared: true,
            peers: ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap()).to_vec(),
            ..OpenTcpPort::default()
        }),
        Request::OpenVif(OpenVif {
            transmit: Some(vec!["ether proto 0x88a2".into()]),
            copies: vec!["ether broadcast".into()],
            priority: 7,
            mac: Some(MacChoice::Own),
            address: Some("10.0.0.9/24".parse().unwrap()),
            ..open_vif()
        }),
        Request::CloseVif(CloseVif { vif: 4 }),
        Request::RevokeVif(CloseVif { vif: 4 }),
        Request::OpenCapture(OpenCapture::default()),
        Request::OpenCapture(OpenCapture {
            filter: vec!["tcp".into()],
            app: Some("echo".into()),
            connection: Some(u64::MAX),
        }),
        Request::Mapped(Empty {}),
        Request::Ping(Ping { udp_port: Some(7), eager: true, ..ping() }),
        Request::Ping(Ping { zone: Some("eth1".into()), ..ping() }),
    ]
}

fn ping() -> Ping {
    Ping {
        peer: "::1".parse().unwrap(),
        zone: None,
        udp_port: None,
        count: 3,
        interval_ms: 10,
        eager: false,
        timeout_ms: 1000,
        bytes: 56,
    }
}

fn open_vif() -> OpenVif {
    OpenVif::default()
}

#[test]
fn requests_and_replies_survive_the_way() {
    for request in requests() {
        let text = serde_json::to_vec(&request).unwrap();
        assert_eq!(Request::parse(&text).unwrap(), request);
    }
    let replies = [
        Reply::Attached(Attached {
            channel: 1,
            engine: 1,
            engine_name: "eth0/1".into(),
            sizes: Sizes::default(),
            wake_up_ns: 5_000,
        }),
        Reply::Listening(Listening { listener: 1, address: "10.0.0.1:7".parse().unwrap() }),
        Reply::Mapped(Empty {}),
        Reply::Unlistened(Empty {}),
        Reply::VifOpened(VifOpened {
            vif: 2,
            mac: Mac([2, 0, 0, 0, 0, 0xfe]),
            mtu: 1500,
            receive: vec!["udp dst port 5353".into()],
            transmit: vec!["udp src port 5353".into()],
            copies: vec![],
        }),
        Reply::VifClosed(Empty {}),
        Reply::Status(StatusPart { text: r#"{"apps": []}"#.into(), more: true }),
        Reply::Pong(Pong { number: 1, probe: Probe::Answered(5000), last: false }),
        Reply::Pong(Pong { number: 2, probe: Probe::NoPort, last: true }),
        Reply::error(Code::Denied),
    ];
    for reply in replies {
        let text = serde_json::to_vec(&reply).unwrap();
        assert_eq!(Reply::parse(&text).unwrap(), reply);
    }
}

#[test]
fn the_text_form_is_what_the_documentation_says() {
    let text = r#"{"listen":{"port":7}}"#;
    assert_eq!(serde_json::to_string(&requests()[2]).unwrap(), text);
    assert_eq!(serde_json::to_string(&Request::Status(Empty {})).unwrap(), r#"{"status":{}}"#);
}

#[test]
fn the_largest_part_of_a_status_fits_in_a_packet() {
    let text = "\"\\".repeat(STATUS_PART_BYTES_MAX / 2);
    let reply = Reply::Status(StatusPart { text, more: false });
    assert!(serde_json::to_vec(&reply).unwrap().len() <= PACKET_BYTES_MAX);
}

#[test]
fn what_is_not_a_request_is_refused() {
    let refused: &[&[u8]] = &[
        b"",
        b"{}",
        b"null",
        b"\xff\xfe",
        br#"{"listen":{"port":7,"more":1}}"#,
        br#"{"listen":{"port":65536}}"#,
        br#"{"listen":{"port":7},"status":{}}"#,
        br#"{"shutdown":{}}"#,
        br#"{"status":{}} x"#,
        br#"{"ping":{"peer":"10.0.0.1","count":0,"interval_ms":1,"bytes":1}}"#,
        br#"{"ping":{"peer":"host","count":1,"interval_ms":1,"bytes":1}}"#,
    ];
    for packet in refused {
        assert!(Request::parse(packet).is_err(), "{}", String::from_utf8_lossy(packet));
    }
    let ports = [
        OpenTcpPort::default(),
        OpenTcpPort { port: 7, peers: vec!["::".parse().unwrap(); 33], ..OpenTcpPort::default() },
    ];
    for port in ports {
        let request = serde_json::to_vec(&Request::OpenTcpPort(port)).unwrap();
        assert!(Request::parse(&request).is_err());
    }
    for app in ["", "new\nline", &"x".repeat(65)] {
        let attach = Request::Attach(Attach::new(app, None, Sizes::default()));
        assert!(Request::parse(&serde_json::to_vec(&attach).unwrap()).is_err());
    }
    assert!(matches!(
        Request::parse(&vec![b' '; PACKET_BYTES_MAX + 1]),
        Err(ParseError::TooLarge(_))
    ));
    let mut padded = br#"{"status":{}}"#.to_vec();
    padded.resize(PACKET_BYTES_MAX, b' ');
    assert_eq!(Request::parse(&padded).unwrap(), Request::Status(Empty {}));
    let deep = "[".repeat(PACKET_BYTES_MAX);
    assert!(Request::parse(deep.as_bytes()).is_err());
    assert!(Reply::parse(format!(r#"{{"status":{deep}"#).as_bytes()).is_err());
}

/// What is just within the limits that the refusals name is taken, and one more is not.
#[test]
fn limits_are_where_the_refusals_say() {
    let attach = |app: usize, engine: usize, layout: usize| {
        let attach = Attach::new("x".repeat(app), Some("e".repeat(engine)), Sizes::default());
        Request::Attach(Attach { layout: Understood::Hash("f".repeat(layout)), ..attach })
    };
    let ping = |count, interval_ms, timeout_ms, bytes| {
        Request::Ping(Ping { count, interval_ms, timeout_ms, bytes, ..ping() })
    };
    let zone = |bytes: usize| Request::Ping(Ping { zone: Some("x".repeat(bytes)), ..self::ping() });
    let vif = |filters: usize, bytes: usize| {
        let receive = vec!["x".repeat(bytes); filters];
        Request::OpenVif(OpenVif { receive, ..open_vif() })
    };
    let capture = |app: usize| {
        Request::OpenCapture(OpenCapture { app: Some("x".repeat(app)), ..OpenCapture::default() })
    };
    let cases = [
        (None, attach(64, 80, 64)),
        (Some("app"), attach(65, 80, 64)),
        (Some("engine"), attach(64, 81, 64)),
        (Some("layout"), attach(64, 80, 65)),
        (None, ping(u32::MAX, 60_000, 60_000, 65_507)),
        (Some("count"), ping(0, 1, 1, 1)),
        (Some("interval_ms"), ping(1, 60_001, 1, 1)),
        (Some("timeout_ms"), ping(1, 1, 60_001, 1)),
        (Some("bytes"), ping(1, 1, 1, 65_508)),
        (None, zone(15)),
        (Some("zone"), zone(16)),
        (None, vif(64, 1)),
        (None, vif(1, 1024)),
        (Some("receive"), vif(65, 1)),
        (Some("receive"), vif(1, 1025)),
        (None, capture(64)),
        (Some("app"), capture(65)),
    ];
    for (expected, request) in cases {
        let refused = match Request::parse(&serde_json::to_vec(&request).unwrap()) {
            Ok(parsed) => {
                assert_eq!(parsed, request);
                None
            }
            Err(ParseError::Range { field, .. }) => Some(field),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(refused, expected, "{request:?}");
    }
    for text in ["10.0.0.9/32", "fd00::9/128", "0.0.0.0/0"] {
        assert_eq!(text.parse::<InterfaceAddress>().unwrap().to_string(), text);
    }
    assert!("fd00::9/129".parse::<InterfaceAddress>().is_err());
}

/// Word by word what the library of the first version has written, and of this one does.
#[test]
fn apps_of_both_versions_can_say_which_they_understand() {
    let sizes = concat!(
        r#"{"submission_entries":1024,"completion_entries":1024,"#,
        r#""transmit_pool_bytes":16777216,"receive_pool_bytes":16777216}"#
    );
    let attach =
        |layout| format!(r#"{{"attach":{{"layout":{layout},"app":"x","sizes":{sizes}}}}}"#);
    let first = Understood::Hash("9644cc9668d65243".into());
    for (layout, text) in [
        (first, attach(r#""9644cc9668d65243""#)),
        (Understood::Versions(Versions { min: 3, max: 3 }), attach(r#"{"min":3,"max":3}"#)),
    ] {
        let request = Request::parse(text.as_bytes()).unwrap();
        let own = Attach { layout, ..Attach::new("x", None, Sizes::default()) };
        assert_eq!(request, Request::Attach(own));
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
    }
    for layout in ["2", "{}", r#"{"min":2}"#, r#"{"min":2,"max":2,"more":1}"#, "null"] {
        assert!(Request::parse(attach(layout).as_bytes()).is_err(), "{layout}");
    }
}

/// A newer daemon may say more than this library knows.
#[test]
fn what_is_new_in_a_reply_is_passed_over() {
    let told = br#"{"listening":{"listener":1,"address":"10.0.0.1:7","backlog":5}}"#;
    let address = "10.0.0.1:7".parse().unwrap();
    assert_eq!(Reply::parse(told).unwrap(), Reply::Listening(Listening { listener: 1, address }));
    let told = br#"{"error":{"code":"out_of_tokens","message":"wait; or pay"}}"#;
    assert_eq!(Reply::parse(told).unwrap(), Reply::error_with(Code::Mismatch, "wait; or pay"));
}

/// A daemon of another version may not know the word: it is there only when it says something.
#[test]
fn exclusive_is_said_only_if_it_is_meant() {
    let attach = Attach::new("echo", None, Sizes::default());
    let text = |exclusive| {
        serde_json::to_string(&Attach { exclusive, ..attach.clone() }).expect("it is text")
    };
    assert!(text(true).contains(r#""exclusive":true"#) && !text(false).contains("exclusive"));
}

/// The same of the zone of a ping: pings without one are served by any daemon.
#[test]
fn a_zone_is_said_only_if_there_is_one() {
    let text =
        |zone| serde_json::to_string(&Request::Ping(Ping { zone, ..ping() })).expect("it is text");
    assert!(text(Some("eth1".into())).contains(r#""zone":"eth1""#) && !text(None).contains("zone"));
}

#[test]
fn a_vif_is_asked_for_in_plain_words() {
    let text = r#"{"open_vif":{"receive":["udp dst port 5353"],"priority":0}}"#;
    assert_eq!(serde_json::to_string(&requests()[7]).unwrap(), text);
    let short = br#"{"open_vif":{"receive":["udp dst port 5353"]}}"#;
    assert_eq!(Request::parse(short).unwrap(), requests()[7]);
    let own = br#"{"open_vif":{"mac":"02:00:00:00:00:Fe","address":"fd00::9/64"}}"#;
    let Request::OpenVif(own) = Request::parse(own).unwrap() else { panic!() };
    assert_eq!(own.mac, Some(MacChoice::Fixed(Mac([2, 0, 0, 0, 0, 0xfe]))));
    assert_eq!(own.address.unwrap().to_string(), "fd00::9/64");
    assert_eq!(own.transmit, None);
    let nothing_to_send = br#"{"open_vif":{"receive":["arp"],"transmit":[]}}"#;
    let Request::OpenVif(silent) = Request::parse(nothing_to_send).unwrap() else { panic!() };
    assert_eq!(silent.transmit, Some(vec![]));
}

#[test]
fn a_vif_that_cannot_be_is_refused_with_the_field() {
    let filter = |filter: &str| OpenVif { receive: vec![filter.into()], ..open_vif() };
    let address = "10.0.0.9/24".parse().ok();
    let fixed = |octets| Some(MacChoice::Fixed(Mac(octets)));
    let refused = [
        ("receive", open_vif()),
        ("receive", OpenVif { mac: Some(MacChoice::Own), ..open_vif() }),
        ("receive", filter("new\nline")),
        ("receive", filter(&"x".repeat(FILTER_BYTES_MAX + 1))),
        ("transmit", OpenVif { transmit: Some(vec![String::new(); 65]), ..open_vif() }),
        ("copies", OpenVif { copies: vec!["arp\0".into()], ..open_vif() }),
        ("address", OpenVif { address, ..filter("arp") }),
        ("mac", OpenVif { mac: fixed([1, 0, 0, 0, 0, 1]), address, ..open_vif() }),
        ("mac", OpenVif { mac: fixed([0; 6]), address, ..open_vif() }),
    ];
    for (field, open) in refused {
        let packet = serde_json::to_vec(&Request::OpenVif(open.clone())).unwrap();
        match Request::parse(&packet) {
            Err(ParseError::Range { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{open:?}: {other:?}"),
        }
    }
    let refused: &[&[u8]] = &[
        br#"{"open_vif":{"mac":"02:00:00:00:00","address":"10.0.0.9/24"}}"#,
        br#"{"open_vif":{"mac":"02:00:00:00:00:01:02","address":"10.0.0.9/24"}}"#,
        br#"{"open_vif":{"mac":"02:00:00:00:00:+1","address":"10.0.0.9/24"}}"#,
        br#"{"open_vif":{"mac":"own","address":"10.0.0.9"}}"#,
        br#"{"open_vif":{"mac":"own","address":"10.0.0.9/33"}}"#,
        br#"{"open_vif":{"receive":"arp"}}"#,
        br#"{"open_capture":{"app":""}}"#,
        br#"{"open_capture":{"connection":1}}"#,
        br#"{"close_vif":{}}"#,
    ];
    for packet in refused {
        assert!(Request::parse(packet).is_err(), "{}", String::from_utf8_lossy(packet));
    }
}

#[test]
fn descriptors_travel_with_a_message() {
    let (near, far) = sockets();
    let (reader, mut writer) = std::io::pipe().unwrap();
    send(&near, &requests()[0], &[reader.as_fd()]).unwrap();
    drop(reader);
    let packet = receive(&far).unwrap().unwrap();
    assert_eq!(Request::parse(&packet.bytes).unwrap(), requests()[0]);
    writer.write_all(b"through").unwrap();
    drop(writer);
    let mut text = String::new();
    let fd = packet.descriptors.into_iter().next().unwrap();
    File::from(fd).read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");
}

/// A request with as many descriptors as a packet can have is refused, and what came with it is
/// neither opened nor closed.
#[test]
fn requests_bring_no_descriptors() {
    /// The most that a packet can have, of the kernel's net/scm.h.
    const SCM_MAX_FD: usize = 253;
    let (near, far) = sockets();
    assert_eq!(receive_bare(&far).unwrap_err().kind(), ErrorKind::WouldBlock);
    send(&near, &requests()[0], &[]).unwrap();
    let bytes = receive_bare(&far).unwrap().unwrap();
    assert_eq!(Request::parse(&bytes).unwrap(), requests()[0]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let many = [reader.as_fd(); SCM_MAX_FD];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SCM_MAX_FD))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&many));
    let slices = [IoSlice::new(b"{}")];
    rustix::net::sendmsg(&near, &slices, &mut ancillary, SendFlags::empty()).unwrap();
    drop(reader);
    for _ in 0..3 {
        assert_eq!(receive_bare(&far).unwrap_err().kind(), ErrorKind::Unsupported);
        writer.write_all(b"the other end is in the socket still").unwrap();
    }
    drop(far);
    assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn the_other_sides_end_and_silence_are_told_apart() {
    let (near, far) = sockets();
    assert_eq!(receive(&far).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(near);
    assert!(receive(&far).unwrap().is_none());
    assert!(receive_bare(&far).unwrap().is_none());
}

#[test]
fn packets_over_the_limit_are_refused_on_both_sides() {
    let (near, far) = sockets();
    let large = Reply::error_with(Code::Internal, "x".repeat(PACKET_BYTES_MAX));
    assert_eq!(send(&near, &large, &[]).unwrap_err().kind(), ErrorKind::InvalidInput);
    rustix::net::send(&near, &vec![b' '; PACKET_BYTES_MAX + 1], SendFlags::empty()).unwrap();
    assert_eq!(receive(&far).unwrap_err().kind(), ErrorKind::InvalidData);
    rustix::net::send(&near, &vec![b' '; PACKET_BYTES_MAX + 1], SendFlags::empty()).unwrap();
    assert_eq!(receive_bare(&far).unwrap_err().kind(), ErrorKind::InvalidData);
    send(&near, &requests()[0], &[]).unwrap();
    assert!(receive(&far).unwrap().is_some());
    // A text is two quotes longer than its characters.
    send(&near, &"x".repeat(PACKET_BYTES_MAX - 2), &[]).unwrap();
    assert_eq!(receive(&far).unwrap().unwrap().bytes.len(), PACKET_BYTES_MAX);
    assert!(send(&near, &"x".repeat(PACKET_BYTES_MAX - 1), &[]).is_err());
    for count in 1..=4 {
        let descriptors = vec![near.as_fd(); count];
        assert_eq!(send(&near, &0, &descriptors).is_ok(), count <= 3);
        if count <= 3 {
            assert_eq!(receive(&far).unwrap().unwrap().descriptors.len(), count);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_parsed_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        which in 0..requests().len(),
        at in any::<usize>(),
    ) {
        let _ = Request::parse(&bytes);
        let _ = Reply::parse(&bytes);
        let mut text = serde_json::to_vec(&requests()[which]).unwrap();
        let at = at % text.len();
        text[at] = bytes.first().copied().unwrap_or(b'"');
        let _ = Request::parse(&text);
    }
}
