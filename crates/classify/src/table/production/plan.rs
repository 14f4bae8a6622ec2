//! Trees being made, a slice at a time.
//!
//! The rules of a node are told apart by the bits that do it best, as long as there is room for the rules that
//! do not ask for these bits and so are in several children. A node has the part of the room that its
//! rules have in its parent. Where no cut is good because of rules that would be in every child, these
//! wait for the next tree. (The idea is that of HiCuts and EffiCuts, with any bits instead of ranges.)

use super::cut::{ANY_PORTS, Chooser, Cut, KnownPorts, Shape, decided_in, known_in};
use super::entry::{Entry, Mask, Wide, hash};
use super::slots::Slots;
use super::tree::{Node, Trees, Window};
use clearway_wire::digest::PATTERN_WORDS;
use std::collections::HashMap;

/// With so few rules there is nothing to tell apart.
const LEAF_MAX: usize = 2;
/// A cut has to leave at most this part of a node's rules.
const WORTH: f64 = 0.9;
/// Cuts are chosen by a sample of so many rules.
const SAMPLE: usize = 96;
/// There is room for as many places for each rule, and for some more: few rules may as well be found fast.
const ROOM_PER_RULE: f64 = 100.0;
const ROOM: f64 = 60_000.0;
/// What a node takes, in places.
const NODE_ROOM: f64 = 2.0;
const TREES_MAX: usize = 3;
/// Rules wait only if they are of so many, if the best cut leaves more than this part of them, and if
/// without those that wait it is so much less.
const WAIT_MIN: usize = 1024;
const WAIT_LEFT_MIN: f64 = 0.25;
const WAIT_GAIN: f64 = 0.5;
/// A slice ends after so many rules or places have been looked at.
const SLICE: usize = 256;
/// What there is to do with a node besides looking at its rules.
const NODE_WORK: usize = 16;

/// A node that is to be made, in one or several places.
#[derive(Debug)]
struct Task {
    nodes: Vec<u32>,
    rules: Vec<u32>,
    known: KnownPorts,
    /// Bits of the digest that are the same for all packets that come here.
    decided: Mask,
    room: f64,
}

/// A node whose rules are being given to its children.
#[derive(Debug)]
struct Fork {
    task: Task,
    window: Window,
    /// True if rules that are everywhere wait for the next tree.
    is_waiting: bool,
    /// How many of the rules have been looked at.
    done: usize,
    /// The rules of each child, and a hash of them.
    children: Vec<(u64, Vec<u32>)>,
}

#[derive(Debug)]
pub(super) struct Plan {
    trees: Trees,
    tasks: Vec<Task>,
    fork: Option<Fork>,
    /// Rules for the next tree.
    waiting: Vec<u32>,
    is_waiting: Vec<bool>,
    lists: HashMap<Vec<u32>, u32>,
    chooser: Chooser,
}

impl Plan {
    /// Trees for the rules in these slots.
    pub(super) fn new(rules: Vec<u32>, slots: &Slots) -> Self {
        let mut plan = Self {
            trees: Trees::default(),
            tasks: Vec::new(),
            fork: None,
            waiting: Vec::new(),
            is_waiting: vec![false; slots.entries().len()],
            lists: HashMap::new(),
            chooser: Chooser::new(),
        };
        plan.root(rules);
        plan
    }

    fn root(&mut self, rules: Vec<u32>) {
        let root = self.trees.nodes.len() as u32;
        self.trees.nodes.push(Node::leaf(0));
        self.trees.roots.push(root);
        let room = rules.len() as f64 * ROOM_PER_RULE + ROOM;
        self.tasks.push(Task {
            nodes: vec![root],
            rules,
            known: ANY_PORTS,
            decided: [0; PATTERN_WORDS],
            room,
        });
    }

    /// One slice of work; the trees, when they are done.
    pub(super) fn step(&mut self, slots: &Slots, wide: &[Wide]) -> Option<Trees> {
        let mut work = 0;
        while work < SLICE {
            if let Some(fork) = self.fork.take() {
                work += self.give(fork, slots.entries(), wide);
            } else if let Some(task) = self.tasks.pop() {
                work += NODE_WORK + task.rules.len();
                self.node(task, slots.entries(), wide);
            } else if self.waiting.is_empty() {
                return Some(std::mem::take(&mut self.trees));
            } else {
                let waiting = std::mem::take(&mut self.waiting);
                self.is_waiting.fill(false);
                self.root(waiting);
            }
        }
        None
    }

    fn node(&mut self, mut task: Task, entries: &[Entry], wide: &[Wide]) {
        let is_here = |slot: usize| !self.is_waiting[slot] && !entries[slot].is_never();
        task.rules.retain(|&slot| is_here(slot as usize));
        match self.choose(&task, entries, wide) {
            Some((Cut { window, .. }, is_waiting)) => {
                let children = vec![(0, Vec::new()); window.children() as usize];
                self.fork = Some(Fork { task, window, is_waiting, done: 0, children });
            }
            None => self.leaf(task, entries),
        }
    }

    /// The best cut, if there is one, and whether rules that are everywhere wait.
    fn choose(&mut self, task: &Task, entries: &[Entry], wide: &[Wide]) -> Option<(Cut, bool)> {
        let count = task.rules.len();
        if count <= LEAF_MAX {
            return None;
        }
        let sample = task.rules.iter().step_by(count.div_ceil(SAMPLE));
        let shape = |&slot: &u32| Shape::of(&entries[slot as usize], wide, &task.known);
        let shapes: Vec<Shape> = sample.map(shape).collect();
        let bits_max = (count.ilog2() as u8 + 2).min(Window::BITS_MAX);
        let may_wait = count >= WAIT_MIN && self.trees.roots.len() < TREES_MAX;
        let (mut best, mut best_without) = (None, None);
        self.chooser.cuts(&shapes, &task.decided, bits_max, |cut| {
            take_better(&mut best, cut, task);
            if may_wait {
                take_better(&mut best_without, cut.without_everywhere(), task);
            }
        });
        let left = best.as_ref().map_or(1.0, |cut: &Cut| cut.left);
        if left > WAIT_LEFT_MIN
            && let Some(without) = best_without.filter(|cut| cut.left < left * WAIT_GAIN)
        {
            return Some((without, true));
        }
        best.filter(|cut| cut.left <= WORTH).map(|cut| (cut, false))
    }

    fn leaf(&mut self, mut task: Task, entries: &[Entry]) {
        task.rules.sort_unstable_by_key(|&slot| entries[slot as usize].rank);
        task.rules.push(Slots::END);
        let lists = &mut self.trees.lists;
        let list = *self.lists.entry(task.rules).or_insert_with_key(|rules| {
            let list = lists.len() as u32;
            lists.extend(rules);
            list
        });
        for node in task.nodes {
            self.trees.nodes[node as usize] = Node::leaf(list);
        }
    }

    /// Gives rules to the children, for a slice; says how many places that made.
    fn give(&mut self, mut fork: Fork, entries: &[Entry], wide: &[Wide]) -> usize {
        let mut places = 0;
        for &slot in &fork.task.rules[fork.done..] {
            if places >= SLICE {
                break;
            }
            fork.done += 1;
            places += 1;
            let shape = Shape::of(&entries[slot as usize], wide, &fork.task.known);
            if fork.is_waiting && shape.is_everywhere(fork.window) {
                self.waiting.push(slot);
                self.is_waiting[slot as usize] = true;
                continue;
            }
            shape.children(fork.window, |child| {
                let (sum, rules) = &mut fork.children[child as usize];
                *sum = hash(*sum, u64::from(slot));
                rules.push(slot);
                places += 1;
            });
        }
        if fork.done < fork.task.rules.len() {
            self.fork = Some(fork);
        } else {
            self.finish(fork);
        }
        places
    }

    /// Makes the node and gives its children out.
    fn finish(&mut self, Fork { task, window, children, .. }: Fork) {
        let base = self.trees.nodes.len() as u32;
        for &node in &task.nodes {
            self.trees.nodes[node as usize] = Node::fork(window, base);
        }
        let leaves = std::iter::repeat_n(Node::leaf(0), children.len());
        self.trees.nodes.extend(leaves);
        let groups = groups(children);
        let places: usize = groups.iter().map(|group| group.rules.len()).sum();
        let room = task.room - f64::from(window.children()) * NODE_ROOM;
        for Group { rules, children } in groups {
            let (known, decided) = match children[..] {
                [child] => {
                    (known_in(&task.known, window, child), decided_in(&task.decided, window))
                }
                _ => (task.known, task.decided),
            };
            let room = room * rules.len() as f64 / places.max(1) as f64;
            let nodes = children.iter().map(|child| base + child).collect();
            self.tasks.push(Task { nodes, rules, known, decided, room });
        }
    }
}

/// Takes a cut if there is room for it and it is better than what there is.
fn take_better(best: &mut Option<Cut>, cut: Cut, task: &Task) {
    let nodes = f64::from(cut.window.children()) * NODE_ROOM;
    let has_room = cut.growth * task.rules.len() as f64 + nodes <= task.room;
    if has_room && best.as_ref().is_none_or(|best| cut.cost() < best.cost()) {
        *best = Some(cut);
    }
}

/// Children with the same rules.
struct Group {
    rules: Vec<u32>,
    children: Vec<u32>,
}

fn groups(children: Vec<(u64, Vec<u32>)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<u64, usize> = HashMap::new();
    for (child, (sum, rules)) in children.into_iter().enumerate() {
        match known.get(&sum).copied().filter(|&at| groups[at].rules == rules) {
            Some(at) => groups[at].children.push(child as u32),
            None => {
                known.insert(sum, groups.len());
                groups.push(Group { rules, children: vec![child as u32] });
            }
        }
    }
    groups
}
