//! The daemon's virtual interfaces: what is sent comes back, but for frames of the ether type
//! `FORBIDDEN`, which are refused. After one of the type `FATAL`, the interface is taken away.

use std::sync::mpsc::Sender;
use std::time::Duration;

use clearway_channel::burst::{FrameInfo, Point, SentBurst, packed_bytes};
use clearway_channel::control::{Empty, Mac, Reply, Request, TcpPortOpened, VifOpened};
use clearway_channel::{Code, Completion, FrameRefusal};

use super::Serving;

/// The ether type of frames that nobody may send.
pub(crate) const FORBIDDEN: u16 = 0xdead;
/// The ether type of frames that are the last of their interface.
pub(crate) const FATAL: u16 = 0xfa7a;
/// Why they are refused.
pub(crate) const REASON: FrameRefusal = FrameRefusal::Vlan;
/// A filter that is refused.
pub(crate) const SECRET: &str = "tcp port 22";
/// The time of all frames.
pub(crate) const SEEN: Duration = Duration::from_secs(5);
pub(crate) const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);

#[derive(Default)]
pub(super) struct Vifs {
    open: Vec<Vif>,
    opened: u32,
    pub(super) tap: Option<Sender<Vec<u8>>>,
}

#[derive(Default)]
struct Vif {
    id: u32,
    is_capture: bool,
    bursts: u32,
    sent: u64,
    rejected: u64,
    reason: u8,
}

impl Serving {
    pub(super) fn answer_vif(&mut self, request: Request) -> Reply {
        match request {
            Request::OpenVif(open) if open.receive.iter().any(|filter| filter == SECRET) => {
                Reply::error_with(Code::Denied, format!("the policy reserves \"{SECRET}\""))
            }
            Request::OpenVif(open) => {
                let transmit = open.transmit.unwrap_or_else(|| vec!["mirrored".into()]);
                self.open_vif(false, open.receive, transmit, open.copies)
            }
            Request::OpenTcpPort(open) => {
                self.vifs.opened += 1;
                let number = self.vifs.opened;
                self.vifs.open.push(Vif { id: number, ..Vif::default() });
                let address = super::address(open.port);
                Reply::TcpPortOpened(TcpPortOpened { number, address })
            }
            Request::OpenCapture(open) => self.open_vif(true, vec![], vec![], open.filter),
            Request::CloseVif(close) => match self.vifs.remove(close.vif) {
                Some(_) => Reply::VifClosed(Empty {}),
                None => Reply::error(Code::Invalid),
            },
            other => panic!("{other:?}"),
        }
    }

    fn open_vif(
        &mut self,
        is_capture: bool,
        receive: Vec<String>,
        transmit: Vec<String>,
        copies: Vec<String>,
    ) -> Reply {
        self.vifs.opened += 1;
        let vif = self.vifs.opened;
        self.vifs.open.push(Vif { id: vif, is_capture, ..Vif::default() });
        Reply::VifOpened(VifOpened { vif, mac: MAC, mtu: 1500, receive, transmit, copies })
    }

    pub(super) fn close_vif(&mut self, vif: u32, code: Code) {
        if self.vifs.remove(vif).is_some() {
            self.tell(Completion::VifClosed { vif, code });
        }
    }

    pub(super) fn send_frames(&mut self, vif: u32, offset: u32, length: u32, count: u16) {
        self.end.sends_finished(1);
        if self.vifs.find(vif).is_none() {
            return;
        }
        let frames = self.read_frames(SentBurst::new(offset, length, count));
        self.heard.clone_from(frames.last().expect("no burst is empty"));
        let Some(found) = self.vifs.find(vif) else { return };
        let is_fatal = frames.iter().any(|frame| has_type(frame, FATAL));
        let is_forbidden = |frame: &Vec<u8>| has_type(frame, FORBIDDEN);
        let (refused, accepted): (Vec<_>, Vec<_>) = frames.into_iter().partition(is_forbidden);
        found.bursts = found.bursts.wrapping_add(1);
        found.sent += accepted.len() as u64;
        found.rejected += refused.len() as u64;
        if !refused.is_empty() {
            found.reason = REASON.as_u8();
        }
        let &mut Vif { bursts, sent, rejected, reason, .. } = found;
        self.tell(Completion::FramesSent { vif, bursts, sent, rejected, reason });
        match &self.vifs.tap {
            Some(tap) => accepted.into_iter().for_each(|frame| tap.send(frame).unwrap_or_default()),
            None => self.deliver_frames(vif, &accepted),
        }
        if is_fatal {
            self.close_vif(vif, Code::Denied);
        }
    }

    fn read_frames(&self, mut burst: SentBurst) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(found) = self.end.next_frame(&mut burst).expect("an honest client") {
            let mut frame = vec![0; found.length as usize];
            self.end.read(found.offset, &mut frame);
            frames.push(frame);
        }
        frames
    }

    /// Gives frames to the app; they are lost if there is no room, as with a real daemon.
    pub(super) fn deliver_frames(&mut self, vif: u32, frames: &[Vec<u8>]) {
        let Some(is_capture) = self.vifs.find(vif).map(|found| found.is_capture) else { return };
        let time_ns = SEEN.as_nanos() as u64;
        let info = match is_capture {
            true => FrameInfo::captured(time_ns, true, Point::Delivered, Some(1), None),
            false => FrameInfo::received(time_ns),
        };
        let packed = frames.iter().map(|frame| packed_bytes(frame.len() as u32)).sum();
        if frames.is_empty() || self.end.completion_room() == 0 {
            return;
        }
        let Some(mut burst) = self.end.allocate_burst(packed, 0) else { return };
        for frame in frames {
            self.end.append_frame(&mut burst, info, frame);
        }
        self.end.grant(burst.id());
        self.tell(burst.completion(vif));
    }
}

fn has_type(frame: &[u8], ether_type: u16) -> bool {
    frame[12..14] == ether_type.to_be_bytes()
}

impl Vifs {
    fn find(&mut self, id: u32) -> Option<&mut Vif> {
        self.open.iter_mut().find(|vif| vif.id == id)
    }

    fn remove(&mut self, id: u32) -> Option<Vif> {
        let at = self.open.iter().position(|vif| vif.id == id)?;
        Some(self.open.remove(at))
    }
}
