//! What a web server says: requests of HTTP/1.1 read from bytes as they come, and whole answers to
//! them. `/N` has a body of N bytes, the same for everybody. It neither sends nor receives.

use std::collections::HashMap;
use std::rc::Rc;

/// The longest body that is served.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// A longer head of a request is not read.
const HEAD_BYTES_MAX: usize = 8192;
/// Fields that a request may have.
const FIELDS_MAX: usize = 32;
/// Answers that are kept, so that they need not be made again.
const ANSWERS_KEPT: usize = 64;

/// An answer with its head, as it is sent.
pub(super) type Answer = Rc<[u8]>;

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wish {
    /// 200, or why not.
    status: u16,
    body_bytes: usize,
    /// The connection ends with the answer.
    pub(super) is_last: bool,
}

/// The body of `/N`: letters that differ from place to place, so that a piece that is missing or
/// elsewhere shows.
pub(super) fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + ((at ^ (at >> 5) ^ (at >> 11)) % 26) as u8).collect()
}

/// Bytes of the answer with such a body, its head included, on a connection that goes on.
pub(super) fn length(body_bytes: usize) -> usize {
    Wish { status: 200, body_bytes, is_last: false }.answer().len()
}

/// The first request in `bytes`, and how many of them it takes. Nothing if it is not all there.
pub(super) fn first_request(bytes: &[u8]) -> Option<(Wish, usize)> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => Some((wish(&request), length)),
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => None,
        _ => Some((Wish::refused(400), bytes.len())),
    }
}

fn wish(request: &httparse::Request<'_, '_>) -> Wish {
    let field = |name: &str| {
        let mut fields = request.headers.iter();
        fields.find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    // What follows a head with one of these is no request.
    if field("content-length").is_some() || field("transfer-encoding").is_some() {
        return Wish::refused(501);
    }
    if request.method != Some("GET") {
        return Wish::refused(405);
    }
    let asks =
        |word: &[u8]| field("connection").is_some_and(|asked| asked.eq_ignore_ascii_case(word));
    let is_last = asks(b"close") || (request.version == Some(0) && !asks(b"keep-alive"));
    let path = request.path.and_then(|path| path.strip_prefix('/')?.parse().ok());
    match path.filter(|bytes| *bytes <= BODY_BYTES_MAX) {
        Some(body_bytes) => Wish { status: 200, body_bytes, is_last },
        None => Wish { status: 404, body_bytes: 0, is_last },
    }
}

impl Wish {
    const fn refused(status: u16) -> Self {
        Self { status, body_bytes: 0, is_last: true }
    }

    fn answer(self) -> Answer {
        let reason = match self.status {
            200 => "OK",
            404 => "Not Found",
            405 => "Method Not Allowed",
            501 => "Not Implemented",
            _ => "Bad Request",
        };
        let last = if self.is_last { "Connection: close\r\n" } else { "" };
        let (status, length) = (self.status, self.body_bytes);
        let head = format!("HTTP/1.1 {status} {reason}\r\nContent-Length: {length}\r\n{last}\r\n");
        [head.into_bytes(), body(length)].concat().into()
    }
}

/// Answers, made once for each wish.
#[derive(Default)]
pub(super) struct Answers(HashMap<Wish, Answer>);

impl Answers {
    pub(super) fn to(&mut self, wish: Wish) -> Answer {
        if self.0.len() == ANSWERS_KEPT && !self.0.contains_key(&wish) {
            self.0.clear();
        }
        Rc::clone(self.0.entry(wish).or_insert_with(|| wish.answer()))
    }
}
