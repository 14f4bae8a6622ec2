//! How the rules of a node are told apart: by which bits of the digest.

use super::entry::{Entry, Mask, Wide};
use super::tree::Window;
use clearway_wire::digest::fields;

/// What a rule asks for, and the ports that its packets may have, as far as these are known where
/// it is asked for.
///
/// A child that is not said to have a rule never gets one of its packets; the other way round, one
/// more child costs a place in a list and is no error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    mask: Mask,
    value: Mask,
    /// Ports from the source, and to the destination: the first and the last.
    ports: [(u16, u16); 2],
}

/// What is known of both ports of all packets that come to a node: the first and the last that they
/// may be.
pub(super) type KnownPorts = [(u16, u16); 2];

/// Nothing is known.
pub(super) const ANY_PORTS: KnownPorts = [(0, u16::MAX); 2];

const PORTS: [u32; 2] = [fields::SOURCE_PORT.shift, fields::DESTINATION_PORT.shift];

/// Bits that a window may be of: it never goes beyond a field, as far as fields are addresses and
/// ports.
const FIELDS: [(u8, u8, u8); 16] = [
    (3, 32, 64),
    (3, 0, 32),
    (0, 48, 64),
    (0, 32, 48),
    (0, 24, 32),
    (0, 0, 24),
    (1, 32, 64),
    (1, 0, 32),
    (2, 32, 64),
    (2, 0, 32),
    (4, 32, 64),
    (4, 0, 32),
    (5, 32, 64),
    (5, 0, 32),
    (6, 32, 64),
    (6, 0, 32),
];

impl Shape {
    pub(super) fn of(entry: &Entry, wide: &[Wide], known: &KnownPorts) -> Self {
        let pattern = entry.pattern(wide);
        let mut ports = entry.ports();
        for (ports, known) in ports.iter_mut().zip(known) {
            let (first, last) = (ports.0.max(known.0), ports.1.min(known.1));
            // If there are none, the rule is here only because children were not told apart
            // exactly.
            if first <= last {
                *ports = (first, last);
            }
        }
        Self { mask: *pattern.mask(), value: *pattern.value(), ports }
    }

    /// Under a window: the bits that do not matter, and the values of the others.
    fn part(&self, window: Window) -> (u32, u32) {
        let all = window.children() - 1;
        let word = usize::from(window.word);
        let mask = (self.mask[word] >> window.shift) as u32 & all;
        let value = (self.value[word] >> window.shift) as u32 & mask;
        (all & !mask, value)
    }

    /// The children in which the rule is.
    pub(super) fn children(&self, window: Window) -> Children {
        if let Some(port) = port_of(window) {
            let all = window.children() - 1;
            let (first, last) = self.ports[port];
            let shift = u32::from(window.shift) - PORTS[port];
            let (first, last) = (u32::from(first) >> shift, u32::from(last) >> shift);
            if first >> window.bits == last >> window.bits && (first & all, last & all) != (0, all)
            {
                return Children::Run(first & all, last & all);
            }
        }
        let (free, value) = self.part(window);
        if free & (free + 1) == 0 {
            Children::Run(value, value | free)
        } else {
            Children::Spread { free, value }
        }
    }
}

/// Some children of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Children {
    /// From the first to the last.
    Run(u32, u32),
    /// Those which have this value, but for the bits that are free.
    Spread { free: u32, value: u32 },
}

impl Children {
    /// How many there are.
    pub(super) const fn count(self) -> u32 {
        match self {
            Self::Run(first, last) => last - first + 1,
            Self::Spread { free, .. } => 1 << free.count_ones(),
        }
    }

    pub(super) fn each(self, mut child: impl FnMut(u32)) {
        let (free, value) = match self {
            Self::Run(first, last) => return (first..=last).for_each(child),
            Self::Spread { free, value } => (free, value),
        };
        let mut some = 0u32;
        loop {
            child(value | some);
            some = some.wrapping_sub(free) & free;
            if some == 0 {
                return;
            }
        }
    }
}

fn port_of(window: Window) -> Option<usize> {
    let is_in = |shift: &u32| (*shift..*shift + 16).contains(&u32::from(window.shift));
    if window.word == 0 { PORTS.iter().position(is_in) } else { None }
}

/// What is known of the ports in a child.
pub(super) fn known_in(known: &KnownPorts, window: Window, child: u32) -> KnownPorts {
    let mut known = *known;
    if let Some(port) = port_of(window) {
        let shift = u32::from(window.shift) - PORTS[port];
        let (first, last) = (u32::from(known[port].0), u32::from(known[port].1));
        // Only if what is known is a prefix that ends where the window begins.
        if first >> shift >> window.bits == last >> shift >> window.bits {
            let prefix = (first >> shift >> window.bits << window.bits) | child;
            known[port] =
                ((prefix << shift) as u16, ((prefix << shift) | ((1 << shift) - 1)) as u16);
        }
    }
    known
}

/// The bits that are the same for all packets in a child.
pub(super) fn decided_in(decided: &Mask, window: Window) -> Mask {
    let mut decided = *decided;
    decided[usize::from(window.word)] |= u64::from(window.children() - 1) << window.shift;
    decided
}

/// A window, and what it would make of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) window: Window,
    /// What part of the rules is left where a packet of one of the rules goes on.
    pub(super) left: f64,
    /// All places of all rules in the children, against the rules that there are.
    pub(super) growth: f64,
}

impl Cut {
    /// The better is less: a place costs a little, too.
    pub(super) fn cost(&self) -> f64 {
        self.left * (1.0 + PLACE_COST * self.growth)
    }
}

const PLACE_COST: f64 = 0.005;

/// Tries cuts.
#[derive(Debug)]
pub(super) struct Chooser {
    /// How many of the rules are in a child, and how many of their packets come there: what the
    /// next child has more than the one before.
    places: Vec<f64>,
    weights: Vec<f64>,
}

impl Chooser {
    pub(super) fn new() -> Self {
        let children = (1 << Window::BITS_MAX) + 1;
        Self { places: vec![0.0; children], weights: vec![0.0; children] }
    }

    /// What a window would make of `count` rules, of which `shapes` are a sample.
    pub(super) fn cut(&mut self, shapes: &[Shape], count: usize, window: Window) -> Cut {
        let all = window.children() as usize;
        let (places, weights) = (&mut self.places[..=all], &mut self.weights[..=all]);
        places.fill(0.0);
        weights.fill(0.0);
        let mut everywhere = 0.0;
        for shape in shapes {
            let children = shape.children(window);
            let share = children.count();
            if share == window.children() {
                everywhere += 1.0;
                continue;
            }
            let weight = 1.0 / f64::from(share);
            let mut add = |first: u32, last: u32| {
                places[first as usize] += 1.0;
                weights[first as usize] += weight;
                places[last as usize + 1] -= 1.0;
                weights[last as usize + 1] -= weight;
            };
            match children {
                Children::Run(first, last) => add(first, last),
                Children::Spread { .. } => children.each(|child| add(child, child)),
            }
        }
        let rules = shapes.len() as f64;
        let (expected, total) = sum(&places[..all], &weights[..all], everywhere);
        let lists = if shapes.len() < count { total.lists_of_all() } else { total.lists };
        let places_in_list = total.places / total.lists.max(1.0) + everywhere;
        Cut {
            window,
            left: expected / rules / rules,
            growth: (lists * places_in_list + everywhere) / rules,
        }
    }
}

/// What is left where a packet goes on, of the rules and summed up over their packets; and the
/// places.
fn sum(places: &[f64], weights: &[f64], everywhere: f64) -> (f64, Places) {
    let part = everywhere / places.len() as f64;
    let (mut expected, mut total) = (0.0, Places::default());
    let (mut here, mut weight) = (0.0, 0.0);
    for (more, more_weight) in places.iter().zip(weights) {
        here += more;
        weight += more_weight;
        expected += (here + everywhere) * (weight + part);
        // Children next to each other with the same rules are one, and so are those with nothing
        // but what is everywhere.
        if *more_weight != 0.0 && here > 0.5 {
            total.places += here;
            total.lists += 1.0;
            total.once += f64::from(u8::from(here < 1.5));
            total.twice += f64::from(u8::from(here > 1.5 && here < 2.5));
        }
    }
    (expected, total)
}

/// The places that a sample of the rules makes.
#[derive(Debug, Default)]
struct Places {
    places: f64,
    /// Different lists, and those of one rule and of two.
    lists: f64,
    once: f64,
    twice: f64,
}

impl Places {
    /// Where many lists have been met only once, there are more of which the sample knows nothing
    /// (the estimate of unseen species of Chao, 1984).
    fn lists_of_all(&self) -> f64 {
        self.lists + self.once * self.once / (2.0 * (self.twice + 1.0))
    }
}

/// All windows of up to `bits_max` bits that are worth a thought, of a node to which all packets
/// come with the same bits under `decided`.
pub(super) fn windows(shapes: &[Shape], decided: &Mask, bits_max: u8) -> Vec<Window> {
    let telling = telling(shapes, decided);
    let mut windows = Vec::new();
    for (word, from, to) in FIELDS {
        let field = (telling[usize::from(word)] >> from) & ((1u64 << (to - from)) - 1);
        if field != 0 {
            let low = from + field.trailing_zeros() as u8;
            let high = from + 64 - field.leading_zeros() as u8;
            windows_between(low, high, bits_max, |shift, bits| {
                windows.push(Window { word, shift, bits });
            });
        }
    }
    windows
}

/// The bits at which rules differ, but for those that are `decided`.
fn telling(shapes: &[Shape], decided: &Mask) -> Mask {
    std::array::from_fn(|word| {
        let (mut any, mut all, mut differ) = (0, u64::MAX, 0);
        for shape in shapes {
            any |= shape.mask[word];
            all &= shape.mask[word];
            differ |= (shape.value[word] ^ shapes[0].value[word]) & shape.mask[word];
        }
        let ranges = if word == 0 { ranges(shapes) } else { 0 };
        ((any & !all) | differ | ranges) & !decided[word]
    })
}

/// The bits of word 0 at which ranges of ports that are not all differ.
fn ranges(shapes: &[Shape]) -> u64 {
    let mut bits = 0;
    for (port, shift) in PORTS.into_iter().enumerate() {
        let first = shapes[0].ports[port];
        for (low, high) in shapes.iter().map(|shape| shape.ports[port]) {
            bits |= u64::from((low ^ first.0) | (high ^ first.1)) << shift;
        }
    }
    bits
}

/// Windows of several widths between two bits, the widest first.
fn windows_between(low: u8, high: u8, bits_max: u8, mut each: impl FnMut(u8, u8)) {
    let mut bits = bits_max.min(high - low);
    loop {
        (low..=high - bits).rev().step_by(SHIFT_STEP).for_each(|shift| each(shift, bits));
        if bits <= 2 {
            return;
        }
        bits = bits * 2 / 3;
    }
}

const SHIFT_STEP: usize = 2;
