//! Vectors: several operations, on one or more connections, that are submitted in one go or not at
//! all.

use std::time::Duration;

use clearway_channel::{Extent, OUTSTANDING_OPERATIONS_MAX};

use super::{Operation, OperationId};
use crate::{Awaited, Channel, ConnectionId, Error};

/// An operation, and the connection whose other end it is asked of.
type Asked<'a> = (ConnectionId, Operation<'a>);

impl Channel {
    /// Begins several operations, of any kinds and on any connections, in one go: all of them or
    /// none. They are submitted in their order, and the daemon is woken once. Each has a completion
    /// of its own, under the id that is returned in its place, and one that is refused stops none
    /// of the others. Waits as long as `timeout` says for room for all, as
    /// [`start_timeout`](Self::start_timeout) does for one.
    ///
    /// # Errors
    /// [`Error::Vector`] names the first operation that is wrong. That may be because there are too
    /// many: a vector has as many as the channel's submission ring has entries, 16384 at most, and
    /// what it takes along fits into the transmit pool.
    pub fn start_vector(
        &mut self,
        vector: &[Asked<'_>],
        timeout: Option<Duration>,
    ) -> Result<Vec<OperationId>, Error> {
        let operations_max = self.vector_operations_max();
        if vector.len() > operations_max {
            self.check_vector(&vector[..operations_max])?;
            return Err(self.too_long(operations_max));
        }
        let extents = self.wait_for(timeout, Awaited::Room, |channel| {
            let commands = vector.len() as u32; // it was bounded above
            let room = channel
                .with_room_for(commands, |channel| channel.room_for_vector(vector).transpose());
            room?.transpose()
        })?;
        let submitted = vector.iter().zip(extents).map(|((connection, operation), extent)| {
            self.submit_operation(*connection, operation, extent)
        });
        let started = submitted.collect();
        self.tell();
        Ok(started)
    }

    fn vector_operations_max(&self) -> usize {
        self.end.sizes().submission_entries.min(OUTSTANDING_OPERATIONS_MAX) as usize
    }

    /// An error if one of these can be asked of nobody.
    fn check_vector(&mut self, vector: &[Asked<'_>]) -> Result<(), Error> {
        for (index, (connection, operation)) in vector.iter().enumerate() {
            let sound = self.check_open(*connection).and_then(|()| operation.check());
            let length = operation.payload().length().unwrap_or(0);
            let checked = sound.and_then(|()| self.check_length(length));
            checked.map_err(|cause| Error::Vector { index, cause: Box::new(cause) })?;
        }
        Ok(())
    }

    /// Room for all commands, and extents for what they take along; `None` if there is not enough
    /// now. Asked each time that there may be room: connections may have ended meanwhile.
    fn room_for_vector(
        &mut self,
        vector: &[Asked<'_>],
    ) -> Result<Option<Vec<Option<Extent>>>, Error> {
        self.check_vector(vector)?;
        let has_room = self.operations.outstanding.has_room_for(vector.len())
            && self.end.has_room_for(vector.len() as u32);
        if !has_room {
            return Ok(None);
        }
        let mut extents = Vec::with_capacity(vector.len());
        for (index, (_, operation)) in vector.iter().enumerate() {
            let length = operation.payload().length();
            let extent = length.map(|length| self.end.allocate(length as u32));
            if extent.as_ref().is_some_and(Option::is_none) {
                return self.without_room(index, extents);
            }
            extents.push(extent.flatten());
        }
        Ok(Some(extents))
    }

    /// There is no memory for the operation at `index`: is there some when others are over?
    fn without_room<T>(
        &mut self,
        index: usize,
        extents: Vec<Option<Extent>>,
    ) -> Result<Option<T>, Error> {
        for extent in extents.into_iter().flatten() {
            self.end.free(extent);
        }
        if self.end.transmit_pool_used_bytes() == 0 {
            return Err(self.too_long(index));
        }
        Ok(None)
    }

    fn too_long(&self, index: usize) -> Error {
        let operations_max = self.vector_operations_max();
        Error::Vector { index, cause: Box::new(Error::VectorTooLong { operations_max }) }
    }
}
