//! Connecting to a host that has several addresses: one after the other.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::{Awaited, Error};

/// What `connect` gives of the first of `peers` to which it succeeds. The first is tried for all of
/// `timeout`, the others for what is left until `deadline`.
pub(crate) fn in_turn<T>(
    peers: &[SocketAddr],
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    mut connect: impl FnMut(SocketAddr, Option<Duration>) -> Result<T, Error>,
) -> Result<T, Error> {
    if let [only] = peers {
        return connect(*only, timeout);
    }
    let (mut failed, mut untried, mut left) = (Vec::new(), peers, timeout);
    while let [peer, behind @ ..] = untried
        && left != Some(Duration::ZERO)
    {
        match connect(*peer, left) {
            Err(error) if is_of_address(&error) => failed.push(error),
            other => return other,
        }
        untried = behind;
        left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
    }
    Err(Error::ConnectToNone { failed, untried: untried.to_vec() })
}

/// Another address may do better.
fn is_of_address(error: &Error) -> bool {
    match error {
        Error::Connect { .. } | Error::TcpConnect { .. } => true,
        Error::TimedOut { awaited, .. } => {
            matches!(awaited, Awaited::Connection(_) | Awaited::TcpConnection(_))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use clearway_channel::Code;

    use super::*;

    fn peers(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|text| format!("{text}:80").parse().expect(text)).collect()
    }

    fn names(error: &Error, words: &[&str]) {
        let text = error.to_string();
        for words in words {
            assert!(text.contains(words), "{words} is missing in: {text}");
        }
    }

    #[test]
    fn who_has_no_time_left_is_told_what_was_tried_and_what_was_not() {
        let three = peers(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let waited = Duration::from_secs(1);
        let refuse = |peer| Error::TcpConnect { peer, waited, code: Code::Refused };
        let stay_silent = |peer| Error::TimedOut { awaited: Awaited::TcpConnection(peer), waited };
        for fail in [&refuse as &dyn Fn(SocketAddr) -> Error, &stay_silent] {
            let mut tried = 0;
            let is_over = Some(Instant::now());
            let error = in_turn::<()>(&three, Some(waited), is_over, |peer, left| {
                tried += 1;
                assert_eq!(left, Some(waited));
                Err(fail(peer))
            });
            let error = error.expect_err("none answers");
            assert_eq!((tried, error.code()), (1, Code::TimedOut));
            names(&error, &["10.0.0.1 port 80", "no time was left for 10.0.0.2, 10.0.0.3"]);
        }
    }

    #[test]
    fn who_is_refused_everywhere_is_told_of_each() {
        let two = peers(&["10.0.0.1", "10.0.0.2"]);
        let refuse = |peer, _| {
            let waited = Duration::ZERO;
            Err::<(), _>(Error::Connect { peer, waited, code: Code::Refused })
        };
        let error = in_turn(&two, None, None, refuse).expect_err("refused");
        assert_eq!(error.code(), Code::Refused);
        names(&error, &["10.0.0.1 port 80", "10.0.0.2 port 80"]);
        assert!(!error.to_string().contains("no time"), "{error}");
        let error = in_turn(&two[..1], None, None, refuse).expect_err("refused");
        assert!(matches!(error, Error::Connect { .. }), "{error}");
    }

    /// What is not about one address ends it.
    #[test]
    fn who_has_no_daemon_tries_no_other_address() {
        let mut tried = 0;
        let gone = |_, _| {
            tried += 1;
            let message = "gone".to_owned();
            Err::<(), _>(Error::DaemonGone { code: Code::DaemonGone, message })
        };
        let error = in_turn(&peers(&["10.0.0.1", "10.0.0.2"]), None, None, gone);
        assert_eq!((error.expect_err("gone").code(), tried), (Code::DaemonGone, 1));
    }
}
