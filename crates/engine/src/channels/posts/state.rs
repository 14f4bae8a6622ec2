//! Posted buffers as plain data, and back.

use clearway_base::state::{Invalid, ensure};
use clearway_channel::{DaemonEnd, POSTS_MAX, POSTS_PER_CONNECTION_MAX};
use serde::{Deserialize, Serialize};

use super::{NUMBERS, Post, Posts, Spot, size};

/// A posted buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostState {
    /// Its number. A message that is coming into it names it.
    pub number: u32,
    /// The slot of its connection.
    pub connection: u32,
    /// The app's name for it.
    pub tag: u64,
    /// Which memory of the channel it is in, where, and how long it is.
    pub memory: u64,
    /// See `memory`.
    pub offset: u64,
    /// See `memory`.
    pub bytes: u64,
}

impl Posts {
    /// Those of each connection in their order. Which are taken, the messages say.
    pub(in crate::channels) fn save(&self) -> Vec<PostState> {
        let all = self.lines.values().flatten();
        let state = |number: &u32| {
            let Post { connection, tag, start, bytes, .. } = *self.all.get(number)?;
            let Spot { memory, offset } = start;
            let bytes = bytes.into();
            Some(PostState { number: *number, connection, tag, memory, offset, bytes })
        };
        all.filter_map(state).collect()
    }

    /// Goes on with what was saved, with the memory of `end`.
    pub(in crate::channels) fn restore(
        saved: &[PostState],
        end: &DaemonEnd,
    ) -> Result<Self, Invalid> {
        ensure(saved.len() <= POSTS_MAX as usize, "more buffers are posted than may be")?;
        let mut posts = Self::default();
        for state in saved {
            let PostState { number, connection, tag, memory, offset, bytes } = *state;
            let bytes = size(bytes).map_err(|why| Invalid(why.text()))?;
            let start = Spot { memory, offset };
            let post = Post { connection, tag, start, bytes, is_taken: false };
            posts.check_place(end, &post).map_err(|why| Invalid(why.text()))?;
            let is_new = number < NUMBERS && !posts.all.contains_key(&number);
            ensure(is_new, "a posted buffer of a number that there is not, or twice")?;
            posts.insert(number, post);
        }
        let most = posts.lines.values().map(Vec::len).max().unwrap_or(0);
        ensure(most <= POSTS_PER_CONNECTION_MAX as usize, "more buffers are posted than may be")?;
        posts.next = saved.last().map_or(0, |last| (last.number + 1) % NUMBERS);
        Ok(posts)
    }

    /// A message of a connection, of so many bytes, is coming into a buffer.
    pub(in crate::channels) fn claim(
        &mut self,
        number: u32,
        connection: u32,
        length: u32,
    ) -> Result<(), Invalid> {
        let fits = |post: &&mut Post| {
            post.connection == connection && post.bytes >= length && !post.is_taken
        };
        let post = self.all.get_mut(&number).filter(fits);
        let post = post.ok_or(Invalid("a message in a buffer that is not posted, or taken"))?;
        post.is_taken = true;
        Ok(())
    }
}
