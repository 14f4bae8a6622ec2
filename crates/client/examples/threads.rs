//! A thread each: every thread attaches a channel of its own, and greets `hello server` by it. That
//! is also what is fastest: threads share nothing. `threads ADDRESS COUNT`.

use clearway_client::{Channel, Error, Options};

const PORT: u16 = 4000;
const ROUNDS: usize = 100;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [server, count] = words.as_slice() else {
        return eprintln!("usage: threads ADDRESS COUNT");
    };
    let count: usize = count.parse().expect("a number of threads");
    let failed = std::thread::scope(|scope| {
        let greet = |number| move || greet(server, &format!("thread-{number}"));
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(greet(number))).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        results.filter_map(Result::err).inspect(|error| eprintln!("threads: {error}")).count()
    });
    println!("{count} threads, {ROUNDS} greetings each, {failed} failed");
    std::process::exit(i32::from(failed > 0));
}

fn greet(server: &str, name: &str) -> Result<(), Error> {
    let mut channel = Channel::attach(&Options::new(name))?;
    let connection = channel.connect((server, PORT), None)?;
    for _ in 0..ROUNDS {
        channel.send(connection, name.as_bytes())?;
        channel.recv_zero_copy(None)?;
    }
    channel.detach(None)
}
