//! One channel for many connections and several threads: one thread owns the channel, receives for
//! all and sends for all; workers take messages from a queue, read them in place, and hand answers
//! back by another. `workers COUNT` listens on port 4000.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use clearway_client::{Channel, Ended, Error, Event, Message, Options};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

const PORT: u16 = 4000;
/// Requests that are taken before the first of them is answered.
const UNDER_WAY_MAX: usize = 1024;

type Answer = (Message, Vec<u8>);

fn main() {
    let count = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let Some(count @ 1..=64) = count else { return eprintln!("usage: workers COUNT (1 to 64)") };
    if let Err(error) = serve(count) {
        eprintln!("workers: {error}");
        std::process::exit(1);
    }
}

fn serve(count: usize) -> Result<(), Error> {
    let mut channel = Channel::attach(&Options::new("workers"))?;
    channel.listen(PORT)?;
    let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let (requests, queue) = mpsc::channel();
    let (answers, ready) = mpsc::channel();
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..count {
        let (queue, answers, bell) = (Arc::clone(&queue), answers.clone(), Arc::clone(&bell));
        std::thread::spawn(move || work(&queue, &answers, &bell));
    }
    println!("listening");
    let mut under_way = 0;
    loop {
        wait(&mut channel, &bell, under_way)?;
        under_way -= send_answers(&mut channel, &ready)?;
        under_way += take_requests(&mut channel, &requests, UNDER_WAY_MAX - under_way)?;
    }
}

/// Reads requests where the daemon put them, which any thread may.
fn work(queue: &Mutex<Receiver<Message>>, answers: &Sender<Answer>, bell: &OwnedFd) {
    loop {
        let Ok(message) = queue.lock().expect("no panic").recv() else { return };
        let answer = message.to_ascii_uppercase();
        if answers.send((message, answer)).is_err() {
            return;
        }
        // It only fails if it is rung already.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// Waits for requests, unless there are too many, and for answers.
fn wait(channel: &mut Channel, bell: &OwnedFd, under_way: usize) -> Result<(), Error> {
    let is_full = under_way == UNDER_WAY_MAX;
    let no_wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let may_wait = channel.arm() || is_full;
    let result = {
        let doorbell = channel.as_fd();
        let mut both = [PollFd::new(bell, PollFlags::IN), PollFd::new(&doorbell, PollFlags::IN)];
        let watched = if is_full { &mut both[..1] } else { &mut both[..] };
        poll(watched, (!may_wait).then_some(&no_wait))
    };
    channel.disarm();
    let _ = rustix::io::read(bell, &mut [0; 8]);
    match result {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns how many there were.
fn send_answers(channel: &mut Channel, ready: &Receiver<Answer>) -> Result<usize, Error> {
    let mut sent = 0;
    for (message, answer) in ready.try_iter() {
        // Without waiting: a client that does not read its answers, or has gone, loses them.
        match channel.try_send(message.connection(), &answer) {
            Err(error) if error.ended() == Ended::Channel => return Err(error),
            _ => channel.release(message),
        }
        sent += 1;
    }
    Ok(sent)
}

/// Returns how many there were, at most as many as there is room for.
fn take_requests(
    channel: &mut Channel,
    requests: &Sender<Message>,
    room: usize,
) -> Result<usize, Error> {
    let mut taken = 0;
    while taken < room {
        match channel.next_event(Some(std::time::Duration::ZERO)) {
            Ok(Event::Message(message)) => {
                requests.send(message).expect("workers do not end before this thread");
                taken += 1;
            }
            Ok(_) => {}
            Err(Error::WouldBlock) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}
