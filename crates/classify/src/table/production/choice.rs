//! Choosing how a node's rules are told apart, a few windows at a time.

use super::cut::{Chooser, Cut, KnownPorts, Shape, windows};
use super::entry::{Entry, Mask, Wide};
use super::tree::Window;

/// With so few rules there is nothing to tell apart.
const LEAF_MAX: usize = 2;
/// A cut has to leave at most this part of a node's rules.
const WORTH: f64 = 0.9;
/// Cuts are chosen by a sample of so many rules.
const SAMPLE: usize = 96;
/// What a node takes, in places.
pub(super) const NODE_ROOM: f64 = 2.0;

/// A node that is to be made, in one or several places.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) nodes: Vec<u32>,
    pub(super) rules: Vec<u32>,
    pub(super) known: KnownPorts,
    /// Bits of the digest that are the same for all packets that come here.
    pub(super) decided: Mask,
    /// In places.
    pub(super) room: f64,
    /// What part of the packets of the tree's rules comes here, if there are as many of each rule.
    pub(super) share: f64,
    /// No window has more bits.
    pub(super) bits_max: u8,
}

impl Task {
    /// True if there is room for so many places and a node with the children of `window`.
    pub(super) fn has_room(&self, places: f64, window: Window) -> bool {
        places + f64::from(window.children()) * NODE_ROOM <= self.room
    }
}

/// A task whose cut is being chosen, by a sample of its rules.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) task: Task,
    shapes: Vec<Shape>,
    /// Those not tried yet.
    windows: Vec<Window>,
    best: Option<Cut>,
}

impl Choice {
    pub(super) fn new(task: Task, entries: &[Entry], wide: &[Wide]) -> Self {
        let count = task.rules.len();
        let (mut shapes, mut untried) = (Vec::new(), Vec::new());
        if count > LEAF_MAX && task.bits_max > 0 {
            let sample = task.rules.iter().step_by(count.div_ceil(SAMPLE));
            shapes =
                sample.map(|&slot| Shape::of(&entries[slot as usize], wide, &task.known)).collect();
            let bits_max = (count.ilog2() as u8 + 2).min(task.bits_max);
            untried = windows(&shapes, &task.decided, bits_max);
        }
        Self { task, shapes, windows: untried, best: None }
    }

    /// Tries one window, if there is one left; says how much work that was.
    pub(super) fn step(&mut self, chooser: &mut Chooser) -> Option<usize> {
        let window = self.windows.pop()?;
        let count = self.task.rules.len();
        let cut = chooser.cut(&self.shapes, count, window);
        let is_better = self.best.is_none_or(|best| cut.cost() < best.cost());
        if is_better && self.task.has_room(cut.growth * count as f64, window) {
            self.best = Some(cut);
        }
        Some(self.shapes.len() / 2 + window.children() as usize / 4)
    }

    /// The best window, if it is worth a node.
    pub(super) fn chosen(&self) -> Option<Window> {
        self.best.filter(|cut| cut.left <= WORTH).map(|cut| cut.window)
    }
}
