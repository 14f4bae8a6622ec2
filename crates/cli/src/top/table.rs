//! Tables whose rows have an order.

use std::cmp::Ordering;

use crate::units::{bit_rate, bytes, count, nanoseconds, rate};

/// What stands in a cell, and by what rows are ordered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Count(u64),
    Bytes(u64),
    Nanoseconds(u64),
    /// Per second.
    Rate(f64),
    /// Bits per second, from bytes.
    BitRate(f64),
    /// Of one.
    Share(f64),
}

impl Cell {
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(value) => count(*value),
            Self::Bytes(value) => bytes(*value),
            Self::Nanoseconds(value) => nanoseconds(*value),
            Self::Rate(value) => rate(*value),
            Self::BitRate(value) => bit_rate(*value),
            Self::Share(value) => format!("{:.0}%", value * 100.0),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Text(_), _) => Ordering::Less,
            (_, Self::Text(_)) => Ordering::Greater,
            _ => self.number().total_cmp(&other.number()),
        }
    }

    fn number(&self) -> f64 {
        match self {
            Self::Text(_) => 0.0,
            Self::Count(value) | Self::Bytes(value) | Self::Nanoseconds(value) => *value as f64,
            Self::Rate(value) | Self::BitRate(value) | Self::Share(value) => *value,
        }
    }
}

/// Rows below titles; `#` aligns numbers to the right, as in [`crate::output::table`].
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Vec<Cell>>,
}

/// By which column rows are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) column: usize,
    pub(super) is_reversed: bool,
}

impl Order {
    /// Takes the next column, or the one before. What is most comes first in a column of numbers.
    pub(super) fn step(&mut self, step: isize, columns: usize) {
        let columns = columns.max(1);
        self.column = (self.column + columns).saturating_add_signed(step) % columns;
        self.is_reversed = false;
    }

    pub(super) fn reverse(&mut self) {
        self.is_reversed = !self.is_reversed;
    }
}

impl Table {
    pub(super) fn sort(&mut self, order: Order) {
        let column = order.column;
        let falls = self.columns.get(column).is_some_and(|title| title.starts_with('#'));
        // Stable, so that rows that are equal stay where they are.
        self.rows.sort_by(|a, b| {
            let (Some(a), Some(b)) = (a.get(column), b.get(column)) else { return Ordering::Equal };
            let rising = a.compare(b);
            if falls == order.is_reversed { rising } else { rising.reverse() }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_rise_and_numbers_fall_until_they_are_reversed() {
        let row = |name: &str, rate| vec![Cell::Text(name.to_owned()), Cell::Rate(rate)];
        let rows = vec![row("b", 1.0), row("a", 3.0), row("c", 2.0)];
        let mut table = Table { columns: &["nic", "#rx/s"], rows };
        let mut order = Order::default();
        let mut names = |order| {
            table.sort(order);
            table.rows.iter().map(|row| row[0].shown()).collect::<String>()
        };
        assert_eq!(names(order), "abc");
        order.reverse();
        assert_eq!(names(order), "cba");
        order.step(1, 2);
        assert_eq!(names(order), "acb");
        order.reverse();
        assert_eq!(names(order), "bca");
        order.step(1, 2);
        assert_eq!((names(order), order), ("abc".to_owned(), Order::default()));
        order.step(-1, 2);
        assert_eq!(order.column, 1);
    }
}
