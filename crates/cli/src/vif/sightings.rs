//! Frames as a capture sees them: where, and what became of them.
//!
//! A frame that comes in is seen twice: on the wire, before the table that decides, and then where
//! it went. One that goes out, the other way round.

use clearway_client::{FrameInfo, Point};

use super::observer::Observer;

/// Where frames are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// On the wire.
    Wire,
    /// At an app, by its channel.
    App(u32),
    /// At the host itself: ARP, ICMP, refusals.
    Host,
}

impl Place {
    pub(super) fn of(info: FrameInfo) -> Self {
        match (info.point(), info.channel()) {
            (Point::Wire, _) => Self::Wire,
            (Point::Refused, None) => Self::Wire,
            (_, Some(channel)) => Self::App(channel),
            (Point::Delivered, None) => Self::Host,
        }
    }

    /// Its name, and what is seen there.
    pub(super) fn describe(self, observer: &mut Observer) -> (String, String) {
        match self {
            Self::Wire => {
                let nic = &observer.nic;
                (format!("wire {nic}"), "before the table that decides, and after it".to_owned())
            }
            Self::App(channel) => {
                let app = observer.app(channel);
                (format!("app {app} {channel}"), format!("what app {app} sends and receives"))
            }
            Self::Host => {
                ("host".to_owned(), "what the host's own services send and receive".to_owned())
            }
        }
    }
}

/// What became of a frame; nothing on the wire, where that is not known yet.
pub(super) fn verdict(info: FrameInfo, observer: &mut Observer) -> String {
    let is_outgoing = info.is_outgoing();
    match (info.point(), info.channel()) {
        (Point::Wire, _) => String::new(),
        (Point::Refused, None) => "no owner: left to the kernel, if it shares the NIC".to_owned(),
        (Point::Refused, Some(channel)) => {
            let app = observer.app(channel);
            let reason = info.reason().map_or("for a reason of another version", |it| it.text());
            format!("from app {app}, refused: {reason}")
        }
        (Point::Delivered, Some(channel)) if is_outgoing => {
            format!("from app {}", observer.app(channel))
        }
        (Point::Delivered, Some(channel)) => format!("to app {}", observer.app(channel)),
        (Point::Delivered, None) if is_outgoing => "from the host".to_owned(),
        (Point::Delivered, None) => "to the host".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_where_a_frame_was_seen() {
        let info =
            |is_outgoing, point, channel| FrameInfo::captured(1, is_outgoing, point, channel, None);
        assert_eq!(Place::of(info(false, Point::Wire, None)), Place::Wire);
        assert_eq!(Place::of(info(false, Point::Refused, None)), Place::Wire);
        assert_eq!(Place::of(info(false, Point::Delivered, Some(7))), Place::App(7));
        assert_eq!(Place::of(info(true, Point::Refused, Some(7))), Place::App(7));
        assert_eq!(Place::of(info(false, Point::Delivered, None)), Place::Host);
    }
}
