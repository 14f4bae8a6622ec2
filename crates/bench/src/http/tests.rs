use super::answer::{Answers, BODY_BYTES_MAX, body, first_request, length};
use super::server::{Happened, Id, Server, Transport};
use super::sockets::Sockets;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

/// What is sent to a server with `wish` as the head of a request.
fn answer_to(request: &str) -> Option<String> {
    let (wish, taken) = first_request(request.as_bytes())?;
    assert_eq!(taken, request.len());
    let answer = Answers::default().to(wish);
    Some(String::from_utf8(answer.to_vec()).expect("text"))
}

#[test]
fn requests_get_what_they_ask_for() {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let found = answer_to(&get("/3")).expect("an answer");
    assert_eq!(found, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(found.len(), length(3));
    for (request, begin, is_last) in [
        (get("/"), "HTTP/1.1 404 ", false),
        (get("/x"), "HTTP/1.1 404 ", false),
        (get(&format!("/{}", BODY_BYTES_MAX + 1)), "HTTP/1.1 404 ", false),
        ("GET /0 HTTP/1.0\r\n\r\n".into(), "HTTP/1.1 200 ", true),
        ("GET /0 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".into(), "HTTP/1.1 200 ", false),
        ("GET /0 HTTP/1.1\r\nConnection: close\r\n\r\n".into(), "HTTP/1.1 200 ", true),
        ("PUT /0 HTTP/1.1\r\n\r\n".into(), "HTTP/1.1 405 ", true),
        ("GET /0 HTTP/1.1\r\nContent-Length: 2\r\n\r\n".into(), "HTTP/1.1 501 ", true),
        ("no request\r\n\r\n".into(), "HTTP/1.1 400 ", true),
    ] {
        let answer = answer_to(&request).expect("an answer");
        assert!(answer.starts_with(begin), "{request}: {answer}");
        assert_eq!(answer.contains("Connection: close"), is_last, "{request}: {answer}");
    }
    assert_eq!(answer_to("GET /3 HTTP/1.1\r\nHost:"), None);
    assert!(answer_to(&format!("GET /{}", "x".repeat(9000))).is_some(), "no end of a head");
}

#[test]
fn a_piece_of_a_body_that_is_elsewhere_shows() {
    let body = body(BODY_BYTES_MAX);
    for distance in [1, 2, 64, 1448, 4096, 8192, 1 << 16] {
        assert_ne!(body[..4096], body[distance..distance + 4096], "{distance}");
    }
}

/// A transport that carries a byte at a time, and has no room each second time.
#[derive(Default)]
struct Narrow {
    to_come: Vec<u8>,
    sent: Vec<u8>,
    has_room: bool,
    is_blocked: bool,
    is_closed: bool,
    was_accepted: bool,
}

impl Transport for &mut Narrow {
    fn next(&mut self) -> io::Result<Happened> {
        if !std::mem::replace(&mut self.was_accepted, true) {
            return Ok(Happened::Accepted(1));
        }
        if std::mem::take(&mut self.is_blocked) {
            return Ok(Happened::Writable(1));
        }
        Ok(Happened::Readable(1))
    }

    fn receive(&mut self, _: Id, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        assert!(!self.is_blocked, "a server that cannot send receives no more");
        if self.to_come.is_empty() {
            return Ok(Some(0));
        }
        buffer[0] = self.to_come.remove(0);
        Ok(Some(1))
    }

    fn send(&mut self, _: Id, bytes: &[u8]) -> io::Result<usize> {
        self.has_room = !self.has_room;
        if !self.has_room {
            self.is_blocked = true;
            return Ok(0);
        }
        self.sent.push(bytes[0]);
        Ok(1)
    }

    fn close(&mut self, _: Id) {
        self.is_closed = true;
    }
}

#[test]
fn whatever_the_pieces_all_is_answered_in_order() {
    let requests = "GET /5 HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n";
    let mut narrow = Narrow { to_come: requests.into(), ..Narrow::default() };
    let mut server = Server::new(&mut narrow);
    for _ in 0..2000 {
        server.turn().expect("a turn");
    }
    assert_eq!(
        String::from_utf8_lossy(&narrow.sent),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde\
         HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"
    );
    assert!(narrow.is_closed);
}

#[test]
fn the_last_answer_ends_the_connection_and_what_follows_is_not_read() {
    let requests = "GET /1 HTTP/1.0\r\n\r\nGET /2 HTTP/1.0\r\n\r\n";
    let mut narrow = Narrow { to_come: requests.into(), ..Narrow::default() };
    let mut server = Server::new(&mut narrow);
    for _ in 0..300 {
        server.turn().expect("a turn");
    }
    assert!(narrow.sent.ends_with(b"close\r\n\r\na"));
    assert!(narrow.is_closed);
    assert_eq!(narrow.to_come, b"GET /2 HTTP/1.0\r\n\r\n");
}

/// On the kernel's sockets: many requests at once whose answers do not fit, on two connections.
#[test]
fn sockets_carry_it() {
    const REQUESTS: usize = 40;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    // It goes on until this process ends.
    std::thread::spawn(move || {
        let mut server = Server::new(Sockets::new(listener).expect("an epoll"));
        while server.turn().is_ok() {}
    });
    let mut streams = [(); 2].map(|()| TcpStream::connect(address).expect("connected"));
    let request = format!("GET /{BODY_BYTES_MAX} HTTP/1.1\r\n\r\n");
    let requests = request.repeat(REQUESTS) + "GET /0 HTTP/1.0\r\n\r\n";
    for stream in &mut streams {
        stream.write_all(requests.as_bytes()).expect("written");
    }
    let (wish, _) = first_request(request.as_bytes()).expect("a request");
    let whole = Answers::default().to(wish);
    for mut stream in streams {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("read");
        let (bodies, last) = received.split_at(REQUESTS * whole.len());
        assert!(bodies.chunks(whole.len()).all(|one| *one == *whole));
        assert!(last.ends_with(b"Connection: close\r\n\r\n"));
    }
}
