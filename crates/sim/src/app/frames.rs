//! An app with a virtual interface: sends raw frames beside the messages, and checks those that
//! come. A raw interface may lose frames; it may not change them, nor show those of others.

use std::collections::VecDeque;

use clearway_base::{MILLISECOND, Random, Time};
use clearway_channel::burst::{Filling, ReceivedBurst, packed_bytes};
use clearway_channel::{AppEnd, Command, Extent};
use clearway_control::filter::Template;
use clearway_nic::MacAddress;

use super::Scene;
use crate::Finding;
use crate::network::vif_mac_of;

/// The Ethernet type of these frames: one of those for experiments (IEEE 802, section 9.2.4).
const ETHER_TYPE: u16 = 0x88b5;
const HEADER_BYTES: usize = 14;
/// After the Ethernet header: the sender, a number, and a sum of what follows.
const BYTES_MIN: usize = HEADER_BYTES + 12 + 34;

/// A virtual interface, and what went through it.
pub(crate) struct Radio {
    host: usize,
    peers: Vec<u32>,
    frame_bytes_max: usize,
    random: Random,
    extents: VecDeque<Extent>,
    bursts: u32,
    number: u32,
    next: Time,
    /// The number of the interface, while it is open.
    vif: Option<u32>,
}

impl Radio {
    /// The interface of an app on `host` that talks to those of `peers`.
    pub(crate) fn new(host: usize, peers: Vec<u32>, mtu: u16, seed: u64) -> Self {
        Self {
            host,
            peers,
            frame_bytes_max: usize::from(mtu).min(500) + HEADER_BYTES,
            random: Random::new(seed),
            extents: VecDeque::new(),
            bursts: 0,
            number: 0,
            next: Time::ZERO,
            vif: None,
        }
    }

    /// What such an interface receives.
    pub(crate) fn receives() -> Vec<Template> {
        templates(&[format!("ether proto {ETHER_TYPE:#x}")])
    }

    /// What it sends: these frames, and what is to come from ports of the host that it keeps from
    /// the kernel's programs.
    pub(crate) fn sends() -> Vec<Template> {
        let from_ports = "vlan optional and src host own and udp src portrange 9000-9003";
        templates(&[format!("ether proto {ETHER_TYPE:#x}"), from_ports.to_owned()])
    }

    /// Such lists as an app writes them.
    pub(crate) fn filters(templates: Vec<Template>) -> Vec<String> {
        templates.iter().map(|template| template.text().to_owned()).collect()
    }

    /// The interface has been opened.
    pub(super) fn open(&mut self, vif: u32) {
        self.vif = Some(vif);
    }

    /// The app has asked for the interface to be closed, and sends nothing more.
    pub(super) fn begin_closing(&mut self) {
        self.vif = None;
    }

    /// No engine has it any more, nor what was to be sent.
    pub(super) fn closed(&mut self, end: &mut AppEnd) {
        self.vif = None;
        self.bursts = 0;
        self.extents.drain(..).for_each(|extent| end.free(extent));
    }

    /// When it sends next.
    pub(super) fn next_at(&self, scene: &Scene<'_>) -> Option<Time> {
        self.may_send(scene).and(Some(self.next))
    }

    /// The interface, if there is something to send by it.
    fn may_send(&self, scene: &Scene<'_>) -> Option<u32> {
        self.vif.filter(|_| !scene.is_ending && !self.peers.is_empty())
    }

    /// Sends a burst if it is time.
    pub(super) fn send(&mut self, end: &mut AppEnd, scene: &mut Scene<'_>) {
        let Some(vif) = self.may_send(scene) else { return };
        if scene.now < self.next || !end.has_room() {
            return;
        }
        self.next = scene.now + MILLISECOND + self.random.below(40 * MILLISECOND);
        let frames: Vec<Vec<u8>> = (0..=self.random.below(8)).map(|_| self.frame()).collect();
        let bytes = frames.iter().map(|frame| packed_bytes(frame.len() as u32)).sum();
        let Some(extent) = end.allocate(bytes) else { return };
        let mut filling = Filling::default();
        for frame in &frames {
            let place = filling.append(end.transmit_bytes(&extent), frame.len() as u32);
            place.expect("counted above").copy_from_slice(frame);
        }
        let (offset, length) = (extent.offset(), extent.length());
        let count = frames.len() as u16;
        if end.submit(&Command::SendFrames { vif, offset, length, count }).is_ok() {
            self.extents.push_back(extent);
        }
    }

    fn frame(&mut self) -> Vec<u8> {
        let to = self.peers[self.random.below(self.peers.len() as u64) as usize];
        let more = self.random.below((self.frame_bytes_max - BYTES_MIN) as u64) as usize;
        let mut frame = vec![0; BYTES_MIN + more];
        frame[..6].copy_from_slice(&vif_mac_of(to as usize));
        frame[6..12].copy_from_slice(&vif_mac_of(self.host));
        frame[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        self.number += 1;
        frame[14..18].copy_from_slice(&self.number.to_le_bytes());
        frame[26..].iter_mut().for_each(|byte| *byte = self.random.next_u32() as u8);
        let sum = sum(&frame);
        frame[18..26].copy_from_slice(&sum.to_le_bytes());
        frame
    }

    /// Checks a burst.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        count: u16,
        scene: &mut Scene<'_>,
    ) -> Result<(), Finding> {
        let burst = ReceivedBurst::new(bytes, count);
        if !burst.is_whole() {
            return Err(Finding::new(format!("host {}: a damaged burst", self.host)));
        }
        for frame in burst {
            if !scene.may_corrupt && !is_right(frame.bytes, vif_mac_of(self.host)) {
                return Err(Finding::new(format!("host {}: a wrong raw frame", self.host)));
            }
            scene.ledger.counts.raw_frames_received += 1;
        }
        Ok(())
    }

    /// Frees the bursts that are finished, of an interface that was not closed meanwhile.
    pub(super) fn finished(
        &mut self,
        end: &mut AppEnd,
        vif: u32,
        bursts: u32,
        rejected: u64,
    ) -> Result<(), Finding> {
        while self.vif == Some(vif) && self.bursts != bursts {
            let Some(extent) = self.extents.pop_front() else {
                return Err(Finding::new("more bursts finished than were sent".to_owned()));
            };
            end.free(extent);
            self.bursts = self.bursts.wrapping_add(1);
        }
        if rejected > 0 {
            return Err(Finding::new(format!("host {}: a lawful frame was refused", self.host)));
        }
        Ok(())
    }
}

fn templates(texts: &[String]) -> Vec<Template> {
    texts.iter().map(|text| Template::parse(text).expect("a filter")).collect()
}

fn is_right(frame: &[u8], mac: MacAddress) -> bool {
    frame.len() >= BYTES_MIN
        && frame[..6] == mac
        && frame[12..14] == ETHER_TYPE.to_be_bytes()
        && frame[18..26] == sum(frame).to_le_bytes()
}

/// Of everything but the sum itself.
fn sum(frame: &[u8]) -> u64 {
    let bytes = frame[..18].iter().chain(&frame[26..]);
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
