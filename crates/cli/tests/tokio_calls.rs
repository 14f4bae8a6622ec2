//! Calls as futures, between apps of two real daemons (`crates/tokio/src/calls.rs`, and its example
//! `calls.rs`).

mod support;

// Its `main` is not called here.
#[allow(dead_code)]
#[path = "../../tokio/examples/calls.rs"]
mod calls;

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use clearway_client::{Awaited, Code, ConnectionId, Error, Options, Refusal, Request, Sizes};
use clearway_tokio::{Calls, Lent};
use support::{Daemon, Network, PATIENCE, SMALL};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

const PORT: u16 = 4100;
const METHOD: u16 = 7;
/// Somewhat more than the channel has room for at a time.
const LARGE: usize = 100_000;
const LARGE_CALLS: usize = 40;
const SHORT: Duration = Duration::from_millis(50);

fn options(daemon: &Daemon) -> Options {
    let sizes = Sizes { receive_pool_bytes: 4 << 20, ..SMALL };
    Options { socket: daemon.socket.clone(), sizes, ..Options::new("tokio-calls") }
}

fn runtimes() -> [Runtime; 2] {
    let mut builders = [Builder::new_current_thread(), Builder::new_multi_thread()];
    builders.each_mut().map(|builder| builder.enable_all().build().expect("a runtime"))
}

/// What is done here must be over in time.
fn run<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    runtime.block_on(async { timeout(PATIENCE, work).await }).expect("it ends in time")
}

/// A server, and a client with a connection to it.
struct Ends {
    server: Calls,
    client: Calls,
    connection: ConnectionId,
}

impl Ends {
    async fn open(network: &Network, port: u16) -> Self {
        let server = Calls::attach(&options(&network.server)).expect("attached");
        server.listen(port).expect("listening");
        let client = Calls::attach(&options(&network.client)).expect("attached");
        let connection = client.connect(network.server.at(port)).await.expect("connected");
        Self { server, client, connection }
    }

    async fn ask(&self, body: &[u8]) -> Result<Vec<u8>, Error> {
        let answer = self.client.call(self.connection, METHOD, body, Some(PATIENCE)).await?;
        Ok(answer.to_vec())
    }

    async fn asked(&self) -> Lent<Request> {
        self.server.request().await.expect("a request")
    }

    /// Nobody takes what is sent.
    async fn ask_for_more_than_there_is_room_for(&self) -> JoinSet<Result<(), Error>> {
        let mut asking = JoinSet::new();
        for _ in 0..5 * LARGE_CALLS {
            let (client, connection) = (self.client.clone(), self.connection);
            asking.spawn(async move {
                client.call(connection, METHOD, &[3; LARGE], None).await.map(drop)
            });
        }
        tokio::time::sleep(SHORT).await;
        asking
    }
}

/// Many at a time, each with its own answer, also when they do not fit into the channel at once.
#[test]
fn each_task_has_its_own_answer() {
    let network = Network::start();
    for (port, runtime) in (PORT..).zip(runtimes()) {
        run(&runtime, async {
            let ends = Ends::open(&network, port).await;
            let server = ends.server.clone();
            let answering = tokio::spawn(async move {
                loop {
                    let request = server.request().await.expect("a request");
                    assert_eq!(request.method(), METHOD);
                    let answer: Vec<u8> = request.iter().rev().copied().collect();
                    assert!(server.answer(request.id(), &answer).expect("a connection"));
                }
            });
            let mut asking = JoinSet::new();
            for number in 0..400u32 {
                let (client, connection) = (ends.client.clone(), ends.connection);
                asking.spawn(async move {
                    let mut body = number.to_le_bytes().to_vec();
                    body.resize(if (number as usize) < LARGE_CALLS { LARGE } else { 64 }, 3);
                    let answer = client.call(connection, METHOD, &body, Some(PATIENCE)).await;
                    body.reverse();
                    assert!(**answer.expect("an answer") == body[..]);
                });
            }
            while let Some(ended) = asking.join_next().await {
                ended.expect("no panic");
            }
            answering.abort();
        });
    }
}

#[test]
fn refusals_deadlines_and_dropped_futures() {
    let network = Network::start();
    for (port, runtime) in (PORT..).zip(runtimes()) {
        run(&runtime, async {
            let ends = Ends::open(&network, port).await;
            let refused = tokio::join!(ends.ask(b"a"), async {
                let request = ends.asked().await;
                ends.server.refuse(request.id(), Refusal::NO_METHOD, "no").expect("refused")
            });
            let Err(Error::CallRefused { reason, text }) = refused.0 else { panic!("{refused:?}") };
            assert_eq!((reason, &text[..]), (Refusal::NO_METHOD, "no"));

            // Without time nothing is asked.
            let call = ends.client.call(ends.connection, METHOD, b"now", Some(Duration::ZERO));
            assert_eq!(call.await.expect_err("no time").code(), Code::WouldBlock);

            // Nobody answers, and the server hears that nobody waits.
            let call = ends.client.call(ends.connection, METHOD, b"b", Some(SHORT));
            let (outcome, request) = tokio::join!(call, ends.asked());
            let error = outcome.expect_err("no answer");
            assert!(
                matches!(&error, Error::TimedOut { awaited: Awaited::AnswerOf { .. }, .. }),
                "{error:?}"
            );
            gives_up(&ends, &request).await;

            // The future is dropped.
            let request = tokio::select! {
                _ = ends.ask(b"c") => panic!("nobody answers"),
                request = ends.asked() => request,
            };
            gives_up(&ends, &request).await;

            // All goes on.
            let (answer, ()) = tokio::join!(ends.ask(b"d"), async {
                let request = ends.asked().await;
                assert_eq!(**request, *b"d");
                assert!(ends.server.answer(request.id(), b"D").expect("answered"));
            });
            assert_eq!(answer.expect("an answer"), b"D");
        });
    }
}

/// The server is told that nobody waits for this answer any more: before what is asked after it.
async fn gives_up(ends: &Ends, request: &Request) {
    let (answer, ()) = tokio::join!(ends.ask(b"next"), async {
        let next = ends.asked().await;
        assert!(!ends.server.answer(request.id(), b"late").expect("a connection"));
        assert!(ends.server.answer(next.id(), b"soon").expect("answered"));
    });
    assert_eq!(answer.expect("an answer"), b"soon");
}

#[test]
fn what_ends_under_a_call_ends_it() {
    let mut network = Network::start();
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let ends = Ends::open(&network, PORT).await;
        let (outcome, ()) = tokio::join!(ends.ask(b"a"), async {
            let request = ends.asked().await;
            ends.server.close(request.id().connection).expect("open");
        });
        assert!(matches!(&outcome, Err(Error::Connection { code: Code::Closed, .. })));
        let again = ends.ask(b"b").await.expect_err("it has ended");
        assert!(matches!(&again, Error::Connection { .. }), "{again:?}");
        let nobody = ends.client.connect(network.server.at(PORT + 50)).await;
        assert!(matches!(&nobody, Err(Error::Connect { code: Code::Refused, .. })), "{nobody:?}");

        let ends = Ends::open(&network, PORT + 1).await;
        let (client, connection) = (ends.client.clone(), ends.connection);
        let asking = tokio::spawn(async move { client.call(connection, METHOD, b"c", None).await });
        let waiting = ends.client.clone();
        let serving = tokio::spawn(async move { waiting.request().await });
        let _request = ends.asked().await;
        network.client.kill();
        let lost = timeout(PATIENCE, asking).await.expect("in time").expect("no panic");
        assert!(matches!(&lost, Err(Error::Connection { code: Code::DaemonGone, .. })), "{lost:?}");
        let gone = timeout(PATIENCE, serving).await.expect("in time").expect("no panic");
        assert_eq!(gone.expect_err("no daemon").code(), Code::DaemonGone);
    });
}

/// Also those for which there was no room yet. Nobody takes what is sent, so that there is none
/// later, either.
#[test]
fn who_closes_a_connection_ends_all_its_calls() {
    let network = Network::start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    run(&runtime, async {
        let ends = Ends::open(&network, PORT).await;
        let mut asking = ends.ask_for_more_than_there_is_room_for().await;
        ends.client.close(ends.connection).expect("open");
        while let Some(ended) = asking.join_next().await {
            let error = ended.expect("no panic").expect_err("it is closed");
            assert!(matches!(error, Error::Connection { code: Code::Closed, .. }), "{error:?}");
        }
    });
}

/// Also while the peer takes nothing, and so nobody is woken.
#[test]
fn nothing_is_kept_of_who_waits_no_longer_to_send() {
    struct Nobody;
    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }
    let network = Network::start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    run(&runtime, async {
        let ends = Ends::open(&network, PORT).await;
        let _asking = ends.ask_for_more_than_there_is_room_for().await;
        let (nobody, body) = (Arc::new(Nobody), vec![3u8; LARGE]);
        let waker = Waker::from(Arc::clone(&nobody));
        let mut call = Box::pin(ends.client.call(ends.connection, METHOD, &body, None));
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(Arc::strong_count(&nobody), 3, "it waits");
        drop(call);
        assert_eq!(Arc::strong_count(&nobody), 2);
    });
}

#[test]
fn the_example_answers() {
    let network = Network::start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let words = ["one", "two", "three"].map(str::to_owned);
    let (server, client) = (options(&network.server), options(&network.client));
    run(&runtime, async {
        let serving = tokio::spawn(async move { calls::serve(&server).await });
        // It may not listen yet.
        loop {
            match calls::ask(&client, network.server.at(4000), &words).await {
                Ok(()) => break,
                Err(Error::Connect { code: Code::Refused, .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
        serving.abort();
    });
}
