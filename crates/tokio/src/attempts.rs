//! Attempts to connect that tasks wait for.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use clearway_client::{Code, Error, Token};

/// Attempts whose connections have names of this kind.
#[derive(Debug)]
pub(crate) struct Attempts<C>(HashMap<Token, Attempt<C>>);

#[derive(Debug)]
struct Attempt<C> {
    begun: Instant,
    outcome: Option<Result<C, Code>>,
    waker: Option<Waker>,
}

impl<C> Default for Attempts<C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C> Attempts<C> {
    pub(crate) fn begin(&mut self, token: Token) {
        self.0.insert(token, Attempt { begun: Instant::now(), outcome: None, waker: None });
    }

    /// The outcome, if it is known or the channel has `ended`; `failed` makes an error of how long
    /// it took, and why.
    pub(crate) fn poll(
        &mut self,
        token: Token,
        ended: Result<(), Error>,
        context: &Context<'_>,
        failed: impl FnOnce(Duration, Code) -> Error,
    ) -> Poll<Result<C, Error>> {
        let attempt = self.0.get_mut(&token).expect("begun, and not forgotten");
        if let Some(outcome) = attempt.outcome.take() {
            return Poll::Ready(outcome.map_err(|code| failed(attempt.begun.elapsed(), code)));
        }
        attempt.waker = Some(context.waker().clone());
        ended.map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending)
    }

    /// Returns the connection if nobody waits for it.
    pub(crate) fn decide(&mut self, token: Token, outcome: Result<C, Code>) -> Option<C> {
        let Some(attempt) = self.0.get_mut(&token) else { return outcome.ok() };
        attempt.outcome = Some(outcome);
        attempt.waker.take().into_iter().for_each(Waker::wake);
        None
    }

    /// Nobody waits for it any more. Returns the connection if there is one already.
    pub(crate) fn forget(&mut self, token: Token) -> Option<C> {
        self.0.remove(&token)?.outcome?.ok()
    }

    /// All ask again.
    pub(crate) fn wake_all(&mut self) {
        let wakers = self.0.values_mut().filter_map(|attempt| attempt.waker.take());
        wakers.for_each(Waker::wake);
    }
}
