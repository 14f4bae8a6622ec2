//! The patterns in the maps of the eBPF program, grouped by mask as `bpf/patterns.h` describes.
//!
//! ```text
//! groups ──▶ one of two arrays of one value: all masks, and what the values of each have in common
//! values     hash table of (group, value under its mask)
//! ```
//!
//! Most changes touch only the hash table. One that needs another set of groups is written to the
//! array that is not in use, and takes effect when that takes the other's place. The kernel returns
//! from that only when no program looks at the other any more, which is then free for the next
//! change.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use aya::Pod;
use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, MapError};
use clearway_wire::digest::WORDS;

use super::{system_error, table};
use crate::Error;
use crate::interface::SteerPattern;

/// Masks: each frame is compared with every one of them.
const GROUPS_MAX: usize = 64;
/// Patterns of all masks: 130 bytes of kernel memory each.
const VALUES_MAX: usize = 131_072;

type Words = [u64; WORDS];

/// `struct group` of patterns.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GroupLayout {
    mask: Words,
    common_mask: Words,
    common_value: Words,
    id: u32,
    many: u32,
}

/// `struct groups` of patterns.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GroupsLayout {
    count: u64,
    frame_bytes_max: u64,
    /// One more than is used.
    group: [GroupLayout; GROUPS_MAX + 1],
}

/// `struct value` of patterns.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ValueKey {
    group: u64,
    words: Words,
}

const _: () = assert!(size_of::<GroupLayout>() == 200, "no padding");
const _: () = assert!(size_of::<GroupsLayout>() == 16 + 200 * (GROUPS_MAX + 1), "no padding");
const _: () = assert!(size_of::<ValueKey>() == 72, "no padding");

// SAFETY: integers without padding between or after them, as asserted above.
unsafe impl Pod for GroupsLayout {}
// SAFETY: as above.
unsafe impl Pod for ValueKey {}

/// The patterns of one mask.
#[derive(Clone, Debug)]
struct Group {
    layout: GroupLayout,
    values: HashSet<Words>,
}

/// The patterns of a program.
pub(crate) struct Patterns {
    groups: Vec<Group>,
    next_id: u32,
    count: usize,
    /// Zero if nobody is to ask.
    frame_bytes_max: u64,
    in_use: ArrayOfMaps<MapData, Array<MapData, GroupsLayout>>,
    /// The first is the one that is not in use.
    arrays: [Array<MapData, GroupsLayout>; 2],
    values: HashMap<MapData, ValueKey, u32>,
}

impl Patterns {
    /// No patterns yet, in the tables that `groups` and `values` stand for, and two arrays.
    pub(crate) fn new(
        groups: OwnedFd,
        values: OwnedFd,
        arrays: [OwnedFd; 2],
    ) -> Result<Patterns, Error> {
        let [first, second] = arrays;
        let arrays = [table(first, Map::Array)?, table(second, Map::Array)?];
        let (in_use, values) = (table(groups, Map::ArrayOfMaps)?, table(values, Map::HashMap)?);
        let (groups, next_id, count, frame_bytes_max) = (Vec::new(), 0, 0, 0);
        Ok(Patterns { groups, next_id, count, frame_bytes_max, in_use, arrays, values })
    }

    /// From the next pattern on, the program looks for what is longer than that, or unfinished.
    pub(crate) fn pass_unfinished(&mut self, frame_bytes_max: u64) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Adds a pattern that is not there, or leaves everything as it was.
    pub(crate) fn insert(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        if self.count == VALUES_MAX {
            return Err(Error::Invalid(format!(
                "the eBPF program steers by at most {VALUES_MAX} patterns; close some, or use \
                 fewer and wider ones"
            )));
        }
        let at = self.group_of(pattern)?;
        let before = self.groups[at].layout;
        let outcome = self.insert_into(at, pattern);
        match &outcome {
            Ok(()) => self.count += 1,
            Err(_) => {
                let group = &mut self.groups[at];
                group.values.remove(pattern.value());
                group.layout = before;
                // If that fails as well it is a frame too many for us, whom nobody told to want it.
                let _ = self.values.remove(&group.key(pattern));
                self.groups.retain(|group| !group.values.is_empty());
            }
        }
        outcome
    }

    fn insert_into(&mut self, at: usize, pattern: &SteerPattern) -> Result<(), Error> {
        let group = &mut self.groups[at];
        let before = group.layout;
        self.values.insert(group.key(pattern), 1, 0).map_err(failed)?;
        group.insert(*pattern.value());
        // Whose mask has no bits looks the same when it has its only value.
        let is_known = group.layout == before && group.values.len() > 1;
        if is_known { Ok(()) } else { self.publish() }
    }

    /// Removes a pattern that is there, or leaves everything as it was.
    pub(crate) fn remove(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        let of_mask = |group: &Group| group.layout.mask == *pattern.mask();
        let Some(at) = self.groups.iter().position(of_mask) else { return Ok(()) };
        let before = self.groups[at].clone_if_small();
        let key = self.groups[at].key(pattern);
        self.groups[at].remove(pattern.value());
        if let Some(before) = before {
            // The groups have to be other ones first: a lone value is not looked up.
            self.groups.retain(|group| !group.values.is_empty());
            if let Err(error) = self.publish() {
                self.groups.retain(|group| group.layout.mask != before.layout.mask);
                self.groups.insert(at, before);
                return Err(error);
            }
        }
        self.count -= 1;
        self.values.remove(&key).map_err(failed).inspect_err(|_| {
            // It is still looked up. If this fails, too, it is gone, but for a frame too many.
            let _ = self.insert(pattern);
        })
    }

    /// The index of the group with the mask of `pattern`, which is made if there is none.
    fn group_of(&mut self, pattern: &SteerPattern) -> Result<usize, Error> {
        let of_mask = |group: &Group| group.layout.mask == *pattern.mask();
        if let Some(at) = self.groups.iter().position(of_mask) {
            return Ok(at);
        }
        if self.groups.len() == GROUPS_MAX {
            return Err(Error::Invalid(format!(
                "the eBPF program steers by at most {GROUPS_MAX} different masks, and each kind \
                 of pattern takes one (prefixes of different lengths are different kinds); close \
                 some, or use a wider pattern that covers several"
            )));
        }
        self.groups.push(Group::new(self.next_id, *pattern.mask()));
        self.next_id = self.next_id.wrapping_add(1);
        Ok(self.groups.len() - 1)
    }

    /// Makes the groups as they are now those in use.
    fn publish(&mut self) -> Result<(), Error> {
        let group = [GroupLayout::default(); GROUPS_MAX + 1];
        let mut layout = GroupsLayout { count: 0, frame_bytes_max: self.frame_bytes_max, group };
        for (place, group) in layout.group.iter_mut().zip(&self.groups) {
            *place = group.layout;
            layout.count += 1;
        }
        self.arrays[0].set(0, layout, 0).map_err(failed)?;
        self.in_use.set(0, &self.arrays[0], 0).map_err(failed)?;
        self.arrays.reverse();
        Ok(())
    }
}

impl Group {
    fn new(id: u32, mask: Words) -> Group {
        let layout = GroupLayout { mask, id, ..GroupLayout::default() };
        Group { layout, values: HashSet::new() }
    }

    fn key(&self, pattern: &SteerPattern) -> ValueKey {
        ValueKey { group: self.layout.id.into(), words: *pattern.value() }
    }

    fn insert(&mut self, value: Words) {
        self.values.insert(value);
        if self.values.len() == 1 {
            return self.is_lone(value);
        }
        let layout = &mut self.layout;
        for (word, value) in value.into_iter().enumerate() {
            layout.common_mask[word] &= !(layout.common_value[word] ^ value);
            layout.common_value[word] &= layout.common_mask[word];
        }
        layout.many = 1;
    }

    /// What the values have in common stays as it was until there is one left: it may be more by
    /// now, but to know that would take a look at all of them.
    fn remove(&mut self, value: &Words) {
        self.values.remove(value);
        if self.values.len() == 1
            && let Some(lone) = self.values.iter().next().copied()
        {
            self.is_lone(lone);
        }
    }

    fn is_lone(&mut self, value: Words) {
        let mask = self.layout.mask;
        self.layout =
            GroupLayout { common_mask: mask, common_value: value, many: 0, ..self.layout };
    }

    /// The group as it is, if a removal changes more of it than the hash table.
    fn clone_if_small(&self) -> Option<Group> {
        (self.values.len() <= 2).then(|| self.clone())
    }
}

fn failed(error: MapError) -> Error {
    Error::System {
        action: "cannot change the patterns of the eBPF program".into(),
        remedy: "The kernel may be out of memory, or the daemon has lost CAP_BPF".into(),
        source: system_error(&error),
    }
}
