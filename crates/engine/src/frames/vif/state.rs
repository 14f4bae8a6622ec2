//! A virtual interface as plain data, and back.

use std::sync::Arc;

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use clearway_channel::burst::SentBurst;
use clearway_channel::{DaemonEnd, FrameRefusal};

use super::{Report, Vif, VifCounters, VifSpec};
use crate::state::{BurstState, FilterState, ReportState, VifSpecState, VifState};

/// More frames than are ever counted; sums do not overflow.
const COUNT_MAX: u64 = u64::MAX / 2;

impl VifSpec {
    pub(crate) fn save(&self) -> VifSpecState {
        VifSpecState {
            receive: FilterState::of_all(&self.receive),
            copies: FilterState::of_all(&self.copies),
            transmit: FilterState::of_all(&self.transmit),
            priority: self.priority,
            mac: self.mac,
            rate_frames_per_s: self.rate_frames_per_s,
            texts: (*self.texts).clone(),
        }
    }
}

impl VifSpecState {
    pub(crate) fn restore(&self) -> Result<VifSpec, Invalid> {
        Ok(VifSpec {
            receive: FilterState::restore_all(&self.receive)?,
            copies: FilterState::restore_all(&self.copies)?,
            transmit: FilterState::restore_all(&self.transmit)?,
            priority: self.priority,
            mac: self.mac,
            rate_frames_per_s: self.rate_frames_per_s,
            texts: Arc::new(self.texts.clone()),
        })
    }
}

impl Vif {
    pub(in crate::frames) fn save(&self) -> VifState {
        let Report { bursts, sent, refused, reason } = self.report;
        let refusals = FrameRefusal::ALL.iter().zip(self.refused);
        VifState {
            channel: self.channel,
            vif: self.id,
            spec: self.spec.save(),
            rate: self.rate.map(|bucket| bucket.save()),
            bursts: self.bursts.iter().map(BurstState::of).collect(),
            counters: self.counters.save(),
            refused: refusals.map(|(reason, count)| (reason.as_u8(), count)).collect(),
            report: ReportState { bursts, sent, refused, reason },
            is_untold: self.is_untold,
        }
    }

    /// This interface, which is new, goes on at `now` where another one was saved.
    pub(in crate::frames) fn go_on(
        &mut self,
        saved: VifState,
        end: &DaemonEnd,
        now: Time,
    ) -> Result<(), Invalid> {
        ensure(saved.rate.is_some() == self.rate.is_some(), "a rate that is not kept")?;
        if let (Some(bucket), Some(saved)) = (&mut self.rate, saved.rate) {
            bucket.go_on(saved, now);
        }
        let bursts = saved.bursts.iter().map(|burst| burst.restore(end));
        self.bursts = bursts.collect::<Result<_, _>>()?;
        self.counters = VifCounters::restore(&saved.counters);
        for (reason, count) in saved.refused {
            let place = usize::from(reason).checked_sub(1).and_then(|at| self.refused.get_mut(at));
            *place.ok_or(Invalid("frames refused without reason"))? = count.min(COUNT_MAX);
        }
        let ReportState { bursts, sent, refused, reason } = saved.report;
        let is_reason = usize::from(reason) <= FrameRefusal::ALL.len();
        ensure(is_reason, "frames refused without reason")?;
        let [sent, refused] = [sent, refused].map(|count| count.min(COUNT_MAX));
        self.report = Report { bursts, sent, refused, reason };
        self.is_untold = saved.is_untold;
        Ok(())
    }
}

impl BurstState {
    fn of(burst: &SentBurst) -> Self {
        Self { offset: burst.offset(), length: burst.length(), frames: burst.frames_left() }
    }

    fn restore(&self, end: &DaemonEnd) -> Result<SentBurst, Invalid> {
        let Self { offset, length, frames } = *self;
        let burst = end.burst(offset, length, frames);
        burst.ok_or(Invalid("frames beyond the pool"))
    }
}
