//! Trees being made, a slice at a time.
//!
//! Rules that ask for much of an address and such that ask for little of it are kept apart, each
//! kind in a tree of its own, so that none is in the way of the others' cuts ("EffiCuts": Vamanan
//! et al., 2010). How much is much is tried out: trees are made for several lengths, and the best
//! are taken.
//!
//! The rules of a node are told apart by the bits that do it best, as long as there is room for the
//! rules that do not ask for these bits and so are in several children. A node has the part of the
//! room that its rules have in its parent. (That idea is of HiCuts: Gupta and McKeown, 1999; any
//! bits, instead of ranges.)

use super::choice::{Choice, NODE_ROOM, Task};
use super::cut::{ANY_PORTS, Chooser, Shape, decided_in, known_in};
use super::entry::{Entry, Wide, hash};
use super::slots::Slots;
use super::tree::{Node, Trees, Window};
use clearway_wire::digest::PATTERN_WORDS;
use std::collections::HashMap;

/// There is room for as many places for each rule, and for some more: few rules may as well be
/// found fast.
const ROOM_PER_RULE: f64 = 100.0;
const ROOM: f64 = 30_000.0;
/// From how many bits on an address is asked for as a whole. Nothing is 33 bits long.
const LENGTHS: [u32; 5] = [33, 8, 16, 12, 20];
/// Searching one more tree costs about what so many places in lists do.
const TREE_COST: f64 = 16.0;
/// Nothing better is looked for if a packet meets no more places than that.
const COST_GOOD: f64 = 24.0;
/// A slice ends after so much work: some ten nanoseconds each.
const SLICE: usize = 4000;
/// To look at a rule, to tell where it belongs, to give it a place, to make a node, and to make a
/// child.
const RULE_WORK: usize = 2;
const SHAPE_WORK: usize = 5;
const PLACE_WORK: usize = 2;
const NODE_WORK: usize = 100;
const CHILD_WORK: usize = 8;
/// As many lists are remembered, to be used again.
const LISTS_KNOWN: usize = 1 << 14;

/// A node whose rules are being given to its children.
#[derive(Debug)]
struct Fork {
    task: Task,
    window: Window,
    /// How many of the rules have been looked at.
    done: usize,
    children: Vec<Child>,
}

/// The rules of a child, a hash of them, and how many of their packets it gets.
#[derive(Clone, Debug, Default)]
struct Child {
    rules: Vec<u32>,
    sum: u64,
    weight: f64,
}

/// What a slice goes on with.
#[derive(Debug)]
enum Doing {
    /// Collecting the rules that there are, from this slot on.
    Collect(usize),
    /// Keeping rules apart, from this one on.
    Split(usize),
    /// The next task.
    Next,
    Choose(Box<Choice>),
    Give(Fork),
}

#[derive(Debug)]
pub(super) struct Plan {
    /// All rules.
    rules: Vec<u32>,
    /// What is being made, for the last length of [`LENGTHS`] but so many.
    trees: Trees,
    cost: f64,
    left: usize,
    /// The best so far, and what they cost.
    best: Option<(f64, Trees)>,
    /// How many rules there were in the groups that have been tried.
    tried: Vec<[usize; 4]>,
    /// The rules of trees that have not been begun.
    groups: [Vec<u32>; 4],
    tasks: Vec<Task>,
    doing: Doing,
    /// Where some of the lists are, by their hash; 0 is none.
    lists: Vec<u32>,
    chooser: Chooser,
}

impl Plan {
    /// Trees for all rules that there are in the slots.
    pub(super) fn new() -> Self {
        Self {
            rules: Vec::new(),
            trees: Trees::default(),
            cost: 0.0,
            left: LENGTHS.len(),
            best: None,
            tried: Vec::new(),
            groups: Default::default(),
            tasks: Vec::new(),
            doing: Doing::Collect(0),
            lists: vec![0; LISTS_KNOWN],
            chooser: Chooser::new(),
        }
    }

    /// One slice of work; the trees, when they are done.
    pub(super) fn step(&mut self, slots: &mut Slots, wide: &[Wide]) -> Option<Trees> {
        let mut work = 0;
        while work < SLICE {
            work += match std::mem::replace(&mut self.doing, Doing::Next) {
                Doing::Collect(from) => self.collect(from, slots),
                Doing::Split(from) => self.split(from, slots.entries()),
                Doing::Choose(choice) => self.choose(choice, slots.entries()),
                Doing::Give(fork) => self.give(fork, slots.entries(), wide),
                Doing::Next => {
                    if let Some(task) = self.tasks.pop() {
                        let choice = Choice::new(task, slots.entries(), wide);
                        self.doing = Doing::Choose(Box::new(choice));
                    } else if !self.root() && self.is_finished() {
                        return self.best.take().map(|(_, trees)| trees);
                    }
                    NODE_WORK
                }
            };
        }
        None
    }

    /// Collects rules, for a slice.
    fn collect(&mut self, from: usize, slots: &mut Slots) -> usize {
        let to = from + SLICE / RULE_WORK;
        self.rules.extend(slots.name(from..to));
        self.doing = if to < slots.entries().len() { Doing::Collect(to) } else { Doing::Split(0) };
        SLICE
    }

    /// Keeps rules apart by how much of the addresses they ask for, for a slice.
    fn split(&mut self, from: usize, entries: &[Entry]) -> usize {
        let length = LENGTHS[LENGTHS.len() - self.left];
        let to = (from + SLICE / RULE_WORK).min(self.rules.len());
        for &slot in &self.rules[from..to] {
            let (source, destination) = entries[slot as usize].prefixes();
            let group = usize::from(source >= length) * 2 + usize::from(destination >= length);
            self.groups[group].push(slot);
        }
        if to < self.rules.len() {
            self.doing = Doing::Split(to);
            return SLICE;
        }
        let sizes = self.groups.each_ref().map(Vec::len);
        if self.tried.contains(&sizes) {
            self.groups = Default::default();
            // No better than what there is.
            self.cost = f64::INFINITY;
        }
        self.tried.push(sizes);
        SLICE
    }

    /// Begins the next tree, if there is one.
    fn root(&mut self) -> bool {
        let Some(rules) = self.groups.iter_mut().find(|rules| !rules.is_empty()) else {
            return false;
        };
        let rules = std::mem::take(rules);
        if self.trees.nodes.is_empty() {
            let room = room(self.rules.len()) as usize;
            self.trees = Trees::with_capacity(room / NODE_ROOM as usize, room);
            self.lists.fill(0);
        }
        let root = self.trees.nodes.len() as u32;
        self.trees.nodes.push(Node::leaf(0));
        self.trees.roots.push(root);
        self.cost += TREE_COST;
        self.tasks.push(Task {
            nodes: vec![root],
            room: room(rules.len()),
            rules,
            known: ANY_PORTS,
            decided: [0; PATTERN_WORDS],
            share: 1.0,
            bits_max: Window::BITS_MAX,
        });
        true
    }

    /// Takes the trees if they are better; true if there is no more to try.
    fn is_finished(&mut self) -> bool {
        let mut trees = std::mem::take(&mut self.trees);
        if self.best.as_ref().is_none_or(|(cost, _)| self.cost < *cost) {
            trees.shrink();
            self.best = Some((self.cost, trees));
        }
        self.left -= 1;
        let cost = std::mem::take(&mut self.cost);
        self.doing = Doing::Split(0);
        self.left == 0 || cost < COST_GOOD
    }

    /// Goes on with a choice, and with what is chosen.
    fn choose(&mut self, mut choice: Box<Choice>, entries: &[Entry]) -> usize {
        if let Some(work) = choice.step(&mut self.chooser) {
            self.doing = Doing::Choose(choice);
            return work;
        }
        let Some(window) = choice.chosen() else { return self.leaf(choice.task, entries) };
        let children = vec![Child::default(); window.children() as usize];
        self.doing = Doing::Give(Fork { task: choice.task, window, done: 0, children });
        window.children() as usize
    }

    fn leaf(&mut self, mut task: Task, entries: &[Entry]) -> usize {
        self.cost += task.share * task.rules.len() as f64;
        if self.best.as_ref().is_some_and(|(cost, _)| self.cost >= *cost) {
            // These will not be the best.
            self.tasks.clear();
            self.groups = Default::default();
            return NODE_WORK;
        }
        task.rules.retain(|&slot| !entries[slot as usize].is_never());
        task.rules.sort_unstable_by_key(|&slot| entries[slot as usize].rank);
        task.rules.push(Slots::END);
        let list = self.list(&task.rules);
        for node in task.nodes {
            self.trees.nodes[node as usize] = Node::leaf(list);
        }
        task.rules.len() * SHAPE_WORK
    }

    /// Where the list is, which may have been made already.
    fn list(&mut self, rules: &[u32]) -> u32 {
        let sum = rules.iter().fold(0, |sum, &slot| hash(sum, u64::from(slot)));
        let known = &mut self.lists[sum as usize % LISTS_KNOWN];
        let lists = &mut self.trees.lists;
        if *known == 0 || !lists[*known as usize..].starts_with(rules) {
            *known = lists.len() as u32;
            lists.extend(rules);
        }
        *known
    }

    /// Gives rules to the children, for a slice; says how much work that was.
    fn give(&mut self, mut fork: Fork, entries: &[Entry], wide: &[Wide]) -> usize {
        let mut work = 0;
        for &slot in &fork.task.rules[fork.done..] {
            if work >= SLICE {
                break;
            }
            fork.done += 1;
            let entry = &entries[slot as usize];
            if entry.is_never() {
                continue;
            }
            let shape = Shape::of(entry, wide, &fork.task.known);
            let children = shape.children(fork.window);
            let count = children.count();
            let weight = 1.0 / f64::from(count);
            children.each(|child| {
                let child = &mut fork.children[child as usize];
                child.sum = hash(child.sum, u64::from(slot));
                child.weight += weight;
                child.rules.push(slot);
            });
            work += SHAPE_WORK + count as usize * PLACE_WORK;
        }
        if fork.done < fork.task.rules.len() {
            self.doing = Doing::Give(fork);
            return work;
        }
        work + self.finish(fork)
    }

    /// Makes the node and gives its children out; or has it made with fewer children, if there are
    /// too many places: the sample by which it was chosen may have been misleading.
    fn finish(&mut self, Fork { mut task, window, children, .. }: Fork) -> usize {
        let work = children.len() * CHILD_WORK;
        let groups = groups(children);
        let places: usize = groups.iter().map(|group| group.rules.len() + 1).sum();
        if !task.has_room(places as f64, window) {
            task.bits_max = window.bits / 2;
            self.tasks.push(task);
            return work;
        }
        let base = self.trees.nodes.len() as u32;
        for &node in &task.nodes {
            self.trees.nodes[node as usize] = Node::fork(window, base);
        }
        let leaves = std::iter::repeat_n(Node::leaf(0), window.children() as usize);
        self.trees.nodes.extend(leaves);
        let room = task.room - f64::from(window.children()) * NODE_ROOM;
        let weights: f64 = groups.iter().map(|group| group.weight).sum();
        for Group { rules, children, weight } in groups {
            let (known, decided) = match children[..] {
                [child] => {
                    (known_in(&task.known, window, child), decided_in(&task.decided, window))
                }
                _ => (task.known, task.decided),
            };
            let room = room * (rules.len() + 1) as f64 / places as f64;
            let share = task.share * weight / weights.max(1.0);
            let nodes = children.iter().map(|child| base + child).collect();
            let bits_max = Window::BITS_MAX;
            self.tasks.push(Task { nodes, rules, known, decided, room, share, bits_max });
        }
        work
    }
}

/// The places that there may be of so many rules.
fn room(rules: usize) -> f64 {
    rules as f64 * ROOM_PER_RULE + ROOM
}

/// Children with the same rules.
struct Group {
    rules: Vec<u32>,
    children: Vec<u32>,
    weight: f64,
}

fn groups(children: Vec<Child>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<u64, usize> = HashMap::new();
    for (at, Child { rules, sum, weight }) in children.into_iter().enumerate() {
        match known.get(&sum).copied().filter(|&group| groups[group].rules == rules) {
            Some(group) => {
                groups[group].children.push(at as u32);
                groups[group].weight += weight;
            }
            None => {
                known.insert(sum, groups.len());
                groups.push(Group { rules, children: vec![at as u32], weight });
            }
        }
    }
    groups
}
