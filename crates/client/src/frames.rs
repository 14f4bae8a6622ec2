//! Frames of virtual interfaces: gathered into bursts and sent, received by the burst.

use std::fmt;
use std::time::Duration;

use clearway_channel::burst::{ReceivedBurst, ReceivedFrame, is_frame_length, packed_bytes};
use clearway_channel::{
    Code, Command, Corrupt, FRAME_BYTES_MAX, OUTSTANDING_SENDS_MAX, ReceiveBuffer,
};

use crate::event::{Arrival, RawFrames};
use crate::{Awaited, Channel, Error, VifId};

/// Room that is taken for a burst: the largest cell of the pool. 32 short frames, or 5 of full
/// size.
const BURST_BYTES: u32 = 8 << 10;

/// Frames that have come to a virtual interface, to be read where the daemon put them: one to 32 of
/// them. Their memory goes back to the daemon when this is dropped, or faster by
/// [`Channel::release_frames`]. While many are held, further frames are lost.
pub struct Frames {
    vif: VifId,
    count: u16,
    buffer: ReceiveBuffer,
}

impl Frames {
    /// The interface that they came to.
    #[must_use]
    pub fn vif(&self) -> VifId {
        self.vif
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Never: a burst has at least one frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The burst as it lies in memory, for bindings: what [`ReceivedBurst`] reads.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// The frames, in the order in which they came.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> ReceivedBurst<'_> {
        ReceivedBurst::new(&self.buffer, self.count)
    }
}

impl<'a> IntoIterator for &'a Frames {
    type Item = ReceivedFrame<'a>;
    type IntoIter = ReceivedBurst<'a>;

    #[inline]
    fn into_iter(self) -> ReceivedBurst<'a> {
        self.iter()
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({} of interface {})", self.count, self.vif)
    }
}

impl Channel {
    /// Sends a frame, from its Ethernet header on; waits while there is no room. It leaves together
    /// with others: when 32 have been gathered or 8 KiB are full, at
    /// [`flush_frames`](Self::flush_frames), or when a call waits. Frames that the interface may
    /// not send are dropped by the daemon and counted: see [`frames_sent`](Self::frames_sent).
    #[inline]
    pub fn send_frame(&mut self, vif: VifId, frame: &[u8]) -> Result<(), Error> {
        self.send_frame_timeout(vif, frame, None)
    }

    /// Sends a frame; waits no longer than `timeout` for room.
    #[inline]
    pub fn send_frame_timeout(
        &mut self,
        vif: VifId,
        frame: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        if let Some(place) = self.append(vif, frame.len()) {
            place.copy_from_slice(frame);
            self.send_if_full(vif);
            return Ok(());
        }
        self.frame_buffer(vif, frame.len(), timeout)?.copy_from_slice(frame);
        Ok(())
    }

    /// Sends a frame, or says [`Error::WouldBlock`]; then [`Event::Writable`] follows when there is
    /// room again.
    ///
    /// [`Event::Writable`]: crate::Event::Writable
    #[inline]
    pub fn try_send_frame(&mut self, vif: VifId, frame: &[u8]) -> Result<(), Error> {
        self.send_frame_timeout(vif, frame, Some(Duration::ZERO))
    }

    /// Room for a frame of `length` bytes, to be filled in place at once: it is sent as it is when
    /// its burst leaves, as with [`send_frame`](Self::send_frame). Waits for room. What is in it
    /// before is left over from what this app sent earlier.
    pub fn frame_buffer(
        &mut self,
        vif: VifId,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<&mut [u8], Error> {
        let length = check_length(length)?;
        self.wait_for(timeout, Awaited::RoomOf(vif), |channel| {
            channel.check_vif(vif)?;
            channel.with_room(|channel| channel.make_place(vif, length))
        })?;
        self.append(vif, length as usize).ok_or(Error::Vif { vif, code: Code::Closed })
    }

    /// Sends the frames that were gathered; waits no longer than `timeout` for room in the ring.
    pub fn flush_frames(&mut self, vif: VifId, timeout: Option<Duration>) -> Result<(), Error> {
        self.wait_for(timeout, Awaited::RoomOf(vif), |channel| {
            channel.check_vif(vif)?;
            channel.with_room(|channel| channel.submit_burst(vif).then_some(()))
        })
    }

    /// Receives the next burst of frames of any virtual interface. That the daemon has taken an
    /// interface away is an [`Error::Vif`], once, after its last frames.
    #[inline]
    pub fn recv_frames(&mut self, timeout: Option<Duration>) -> Result<Frames, Error> {
        let frames = self.wait_for(timeout, Awaited::Frames, Self::next_frames)?;
        self.frames_in_place(frames)
    }

    /// Gives the memory of frames back; the same as dropping them, but faster.
    #[inline]
    pub fn release_frames(&mut self, frames: Frames) {
        self.end.release_buffer(frames.buffer);
    }

    /// Adds a frame to the burst that is being filled, if it has room.
    #[inline]
    fn append(&mut self, vif: VifId, length: usize) -> Option<&mut [u8]> {
        let length = u32::try_from(length).ok().filter(|&length| is_frame_length(length))?;
        let burst = self.vifs.find(vif)?.burst.as_mut()?;
        burst.filling.append(self.end.transmit_bytes(&burst.extent), length)
    }

    /// Sends a burst to which nothing can be added. If there is no room in the ring, the next call
    /// does it.
    #[inline]
    fn send_if_full(&mut self, vif: VifId) {
        let burst = self.vifs.find(vif).and_then(|found| found.burst.as_ref());
        if burst.is_some_and(|burst| burst.filling.is_full()) {
            self.submit_burst(vif);
        }
    }

    /// Makes room for a frame in the burst that is being filled, or begins another one.
    fn make_place(&mut self, vif: VifId, length: u32) -> Option<()> {
        if let Some(burst) = &self.vifs.find(vif)?.burst {
            if burst.filling.has_room(length, burst.extent.length()) {
                return Some(());
            }
            if !self.submit_burst(vif) {
                return None;
            }
        }
        let extent = self.end.allocate(packed_bytes(length).max(BURST_BYTES))?;
        match self.vifs.begin(vif, extent) {
            Ok(()) => Some(()),
            Err(extent) => {
                self.end.free(extent);
                None
            }
        }
    }

    /// Sends the burst that is being filled; false if there is no room in the ring.
    pub(crate) fn submit_burst(&mut self, vif: VifId) -> bool {
        if self.vifs.find(vif).is_none_or(|found| found.burst.is_none()) {
            return true;
        }
        if !self.may_send() {
            return false;
        }
        let Some(found) = self.vifs.find(vif) else { return true };
        let Some(burst) = found.burst.take() else { return true };
        let (offset, length) = (burst.extent.offset(), burst.filling.used_bytes());
        let count = burst.filling.count();
        found.outstanding.push_back(burst.extent);
        self.sends_outstanding += 1;
        self.submit(&Command::SendFrames { vif: vif.0, offset, length, count });
        true
    }

    /// Sends all bursts that are being filled, as far as there is room. True if there was.
    pub(crate) fn submit_bursts(&mut self) -> bool {
        while let Some(vif) = self.vifs.next_unflushed() {
            if !self.submit_burst(vif) {
                return false;
            }
            self.vifs.flushed();
        }
        true
    }

    /// The same before a sleep. False if the ring had no room for them, which nobody rings for;
    /// that other sends are finished is told.
    pub(crate) fn leaves_no_burst(&mut self) -> bool {
        self.submit_bursts() || self.sends_outstanding >= OUTSTANDING_SENDS_MAX
    }

    fn check_vif(&mut self, vif: VifId) -> Result<(), Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        match self.vifs.find(vif) {
            Some(_) => Ok(()),
            None => Err(Error::Vif { vif, code: Code::Closed }),
        }
    }

    #[inline]
    pub(crate) fn frames_in_place(&self, frames: RawFrames) -> Result<Frames, Error> {
        let RawFrames { vif, count, bytes } = frames;
        let buffer = self.end.receive_buffer(bytes);
        let frames = Frames { vif, count, buffer };
        if frames.iter().is_whole() { Ok(frames) } else { Err(Corrupt.into()) }
    }

    /// The next frames, or the end of an interface as an error.
    #[inline]
    fn next_frames(&mut self) -> Result<Option<RawFrames>, Error> {
        if let Some(arrival) = self.frames.pop_front() {
            return frames_of(arrival);
        }
        while let Some(arrival) = self.next_arrival()? {
            match arrival {
                Arrival::Frames(_) | Arrival::VifClosed { .. } => return frames_of(arrival),
                other => self.queue(other),
            }
        }
        Ok(None)
    }

    /// Frees what was sent and is finished.
    #[inline]
    pub(crate) fn finish_bursts(&mut self, vif: VifId, bursts: u32, told: crate::FramesSent) {
        let Some(found) = self.vifs.find(vif) else { return };
        found.told = told;
        let mut finished = 0;
        while let Some(extent) = found.next_finished(bursts) {
            self.end.free(extent);
            finished += 1;
        }
        self.sends_are_over(finished);
    }

    /// Frames and the end of an interface that nobody will ask for any more; true if its end was
    /// among them.
    pub(crate) fn forget_frames_of(&mut self, vif: VifId) -> bool {
        let mut has_ended = false;
        for arrival in std::mem::take(&mut self.frames) {
            match arrival {
                Arrival::Frames(frames) if frames.vif == vif => self.end.release(frames.bytes),
                Arrival::VifClosed { vif: closed, .. } if closed == vif => has_ended = true,
                other => self.frames.push_back(other),
            }
        }
        has_ended
    }
}

fn check_length(length: usize) -> Result<u32, Error> {
    match u32::try_from(length) {
        Ok(short) if is_frame_length(short) => Ok(short),
        _ => Err(Error::FrameLength { length, limit: FRAME_BYTES_MAX as usize }),
    }
}

/// Frames, or the end of an interface as an error.
fn frames_of(arrival: Arrival) -> Result<Option<RawFrames>, Error> {
    match arrival {
        Arrival::Frames(frames) => Ok(Some(frames)),
        Arrival::VifClosed { vif, code } => Err(Error::Vif { vif, code }),
        _ => Ok(None),
    }
}
