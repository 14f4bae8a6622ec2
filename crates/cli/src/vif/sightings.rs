//! Frames as a capture sees them: whose they are, and what became of them. Each is seen once: when
//! the host or an app has sent it, or where it was given to whoever receives it.

use clearway_client::{FrameInfo, Point};

use super::observer::Observer;

/// Whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    /// An app's, by its channel.
    App(u32),
    /// The host's own: ARP, ICMP, refusals.
    Host,
    /// Nobody's here.
    Nobody,
}

impl Party {
    pub(super) fn of(info: FrameInfo) -> Self {
        match (info.channel(), info.point()) {
            (Some(channel), _) => Self::App(channel),
            (None, Point::Refused) => Self::Nobody,
            (None, Point::Wire | Point::Delivered) => Self::Host,
        }
    }

    /// The name of its interface in a capture, and what is seen there.
    pub(super) fn describe(self, observer: &mut Observer) -> (String, String) {
        match self {
            Self::App(channel) => {
                let app = observer.app(channel);
                (format!("app {app} {channel}"), format!("what app {app} sends and receives"))
            }
            Self::Host => {
                ("host".to_owned(), "what the host's own services send and receive".to_owned())
            }
            Self::Nobody => {
                let nic = &observer.nic;
                (
                    format!("wire {nic}"),
                    "what comes and is neither an app's nor the host's".to_owned(),
                )
            }
        }
    }
}

/// What became of a frame.
pub(super) fn verdict(info: FrameInfo, observer: &mut Observer) -> String {
    let party = match Party::of(info) {
        Party::App(channel) => format!("app {}", observer.app(channel)),
        Party::Host => "the host".to_owned(),
        Party::Nobody => return "no owner: left to the kernel, if it shares the NIC".to_owned(),
    };
    match info.point() {
        Point::Refused => {
            let reason = info.reason().map_or("for a reason of another version", |it| it.text());
            format!("from {party}, refused: {reason}")
        }
        Point::Wire | Point::Delivered if info.is_outgoing() => format!("from {party}"),
        Point::Wire | Point::Delivered => format!("to {party}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn party_is_who_has_sent_a_frame_or_receives_it() {
        let info =
            |is_outgoing, point, channel| FrameInfo::captured(1, is_outgoing, point, channel, None);
        assert_eq!(Party::of(info(true, Point::Wire, None)), Party::Host);
        assert_eq!(Party::of(info(true, Point::Wire, Some(7))), Party::App(7));
        assert_eq!(Party::of(info(false, Point::Refused, None)), Party::Nobody);
        assert_eq!(Party::of(info(false, Point::Delivered, Some(7))), Party::App(7));
        assert_eq!(Party::of(info(true, Point::Refused, Some(7))), Party::App(7));
        assert_eq!(Party::of(info(false, Point::Delivered, None)), Party::Host);
    }
}
