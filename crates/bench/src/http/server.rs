//! A web server: one thread, one loop, any number of connections. It is the same over all that can
//! carry it ([`Transport`]).

use super::answer::{Answer, Answers, first_request};
use std::collections::{HashMap, VecDeque};
use std::io;

/// What a connection is called.
pub(super) type Id = u64;

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// A client has connected.
    Accepted(Id),
    /// There is something to receive, or the end. Told again while that is so.
    Readable(Id),
    /// There is room again after a send had found none.
    Writable(Id),
}

/// What carries connections. None of its calls but [`next`](Self::next) waits.
pub(super) trait Transport {
    /// What happens next. An error is the end of all.
    fn next(&mut self) -> io::Result<Happened>;

    /// Receives some of what has come: how many bytes, 0 at the end; nothing if nothing has come.
    fn receive(&mut self, id: Id, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Sends some of `bytes`; how many: 0 if there is no room. Then it is told when there is, and
    /// what can be received is not told until then.
    fn send(&mut self, id: Id, bytes: &[u8]) -> io::Result<usize>;

    /// Lets go of a connection. What was sent still arrives.
    fn close(&mut self, id: Id);
}

/// Bytes that are received in one call.
const BUFFER_BYTES: usize = 16 << 10;

/// The server.
pub(super) struct Server<T> {
    transport: T,
    clients: HashMap<Id, Client>,
    answers: Answers,
    buffer: Vec<u8>,
}

/// A connection.
#[derive(Default)]
struct Client {
    /// The beginning of a request.
    unread: Vec<u8>,
    /// Answers that are not sent, and how much of the first of them is.
    unsent: VecDeque<Answer>,
    sent_bytes: usize,
    /// The last answer is among them, or sent.
    is_over: bool,
}

impl<T: Transport> Server<T> {
    pub(super) fn new(transport: T) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { transport, clients: HashMap::new(), answers: Answers::default(), buffer }
    }

    /// Waits for what happens next, and does what there is to do about it.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        match self.transport.next()? {
            Happened::Accepted(id) => {
                self.clients.insert(id, Client::default());
            }
            Happened::Readable(id) | Happened::Writable(id) => self.serve(id),
        }
        Ok(())
    }

    /// What goes wrong with a connection is the end of it only.
    fn serve(&mut self, id: Id) {
        let Self { transport, clients, answers, buffer } = self;
        let Some(client) = clients.get_mut(&id) else { return };
        if !client.serve(id, transport, answers, buffer).unwrap_or(false) {
            clients.remove(&id);
            transport.close(id);
        }
    }
}

impl Client {
    /// Sends what waits, receives once, answers. False if that was the end.
    fn serve(
        &mut self,
        id: Id,
        transport: &mut impl Transport,
        answers: &mut Answers,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        if !self.flush(id, transport)? {
            return Ok(true);
        }
        if self.is_over {
            return Ok(false);
        }
        let Some(count) = transport.receive(id, buffer)? else { return Ok(true) };
        if count == 0 {
            return Ok(false);
        }
        self.take(&buffer[..count], answers);
        let is_flushed = self.flush(id, transport)?;
        Ok(!(is_flushed && self.is_over))
    }

    /// Sends until nothing waits: true; or there is no room.
    fn flush(&mut self, id: Id, transport: &mut impl Transport) -> io::Result<bool> {
        while let Some(answer) = self.unsent.front() {
            match transport.send(id, &answer[self.sent_bytes..])? {
                0 => return Ok(false),
                sent => self.sent_bytes += sent,
            }
            if self.sent_bytes == answer.len() {
                self.unsent.pop_front();
                self.sent_bytes = 0;
            }
        }
        Ok(true)
    }

    /// Answers all whole requests, and keeps the rest.
    fn take(&mut self, received: &[u8], answers: &mut Answers) {
        if self.unread.is_empty() {
            let taken = self.answer(received, answers);
            self.unread.extend_from_slice(&received[taken..]);
        } else {
            let mut unread = std::mem::take(&mut self.unread);
            unread.extend_from_slice(received);
            let taken = self.answer(&unread, answers);
            unread.drain(..taken);
            self.unread = unread;
        }
    }

    /// How many bytes were requests.
    fn answer(&mut self, bytes: &[u8], answers: &mut Answers) -> usize {
        let mut taken = 0;
        while !self.is_over
            && let Some((wish, length)) = first_request(&bytes[taken..])
        {
            taken += length;
            self.is_over = wish.is_last;
            self.unsent.push_back(answers.to(wish));
        }
        taken
    }
}
