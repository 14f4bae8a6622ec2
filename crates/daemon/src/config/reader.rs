//! Walks a parsed TOML table key by key, keeping the place of everything, and reports what does
//! not fit: wrong types, values out of range, keys that nobody asked for.
//!
//! A section is asked for each key that it may hold and then told to `finish`, which finds the
//! keys that are left. So the list of known keys is the code that reads them.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Sink;

/// What is above all sections.
pub(super) const TOP_LEVEL: &str = "the top level";

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Range<usize>,
}

/// One table of the file.
#[derive(Debug)]
pub struct Section<'t> {
    /// How the user writes it: `[[nic]]`.
    title: &'static str,
    table: &'t DeTable<'t>,
    span: Range<usize>,
    known: Vec<&'static str>,
    sink: &'t Sink<'t>,
}

impl<'t> Section<'t> {
    pub(super) fn new(
        title: &'static str,
        table: &'t DeTable<'t>,
        span: Range<usize>,
        sink: &'t Sink<'t>,
    ) -> Self {
        Self { title, table, span, known: Vec::new(), sink }
    }

    /// Where the section begins.
    pub fn span(&self) -> &Range<usize> {
        &self.span
    }

    /// Notes a problem.
    pub fn report(&self, span: &Range<usize>, cause: impl Into<String>, remedy: impl Into<String>) {
        self.sink.report(span, cause, remedy);
    }

    /// Notes a problem within a string, at a character of it that is counted from 1.
    pub fn report_within(
        &self,
        string: &Placed<String>,
        column: usize,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let at = self.sink.place_within(&string.span, &string.value, column);
        self.sink.report(&(at..at), cause, remedy);
    }

    /// True if the user wrote this key, with whatever value.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A string in quotes.
    pub fn string(&mut self, key: &'static str) -> Option<Placed<String>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(Placed { value: text.to_string(), span: value.span() }),
            other => self.wrong_type(key, value.span(), other, "a string in quotes"),
        }
    }

    /// A whole number in `range`.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<Placed<u64>> {
        let value = self.value(key)?;
        let DeValue::Integer(number) = value.get_ref() else {
            return self.wrong_type(key, value.span(), value.get_ref(), "a whole number");
        };
        match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if range.contains(&number) => {
                Some(Placed { value: number, span: value.span() })
            }
            _ => {
                let (low, high) = range.into_inner();
                self.report(
                    &value.span(),
                    format!("`{key} = {number}` is out of range"),
                    format!("give a number from {low} to {high}"),
                );
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            other => self.wrong_type(key, value.span(), other, "true or false, without quotes"),
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let given = self.string(key)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == given.value) {
            return Some(*value);
        }
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        self.report(
            &given.span,
            format!("`{key}` cannot be \"{}\"", given.value),
            format!("choose one of {}", names.join(", ")),
        );
        None
    }

    /// An array of strings; empty if the key is absent. Numbers are taken as their digits if
    /// `numbers` is set (user ids, ports).
    pub fn strings(&mut self, key: &'static str, numbers: bool) -> Vec<Placed<String>> {
        let expected = if numbers {
            "an array of strings or numbers, as in [\"a\", 1]"
        } else {
            "an array of strings, as in [\"a\", \"b\"]"
        };
        let Some(value) = self.value(key) else { return Vec::new() };
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type::<()>(key, value.span(), value.get_ref(), expected);
            return Vec::new();
        };
        let mut strings = Vec::new();
        for item in array.iter() {
            match item.get_ref() {
                DeValue::String(text) => {
                    strings.push(Placed { value: text.to_string(), span: item.span() });
                }
                DeValue::Integer(number) if numbers => {
                    strings.push(Placed { value: number.to_string(), span: item.span() });
                }
                other => {
                    self.wrong_type::<()>(key, item.span(), other, expected);
                }
            }
        }
        strings
    }

    /// A table inside this one.
    pub fn section(&mut self, key: &'static str, title: &'static str) -> Option<Self> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(Self::new(title, table, value.span(), self.sink)),
            other => {
                self.wrong_type(key, value.span(), other, &format!("a section that starts {title}"))
            }
        }
    }

    /// An array of tables; empty if there is none.
    pub fn sections(&mut self, key: &'static str, title: &'static str) -> Vec<Self> {
        let expected = format!("one or more sections that start {title}");
        let Some(value) = self.value(key) else { return Vec::new() };
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type::<()>(key, value.span(), value.get_ref(), &expected);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in array.iter() {
            match item.get_ref() {
                DeValue::Table(table) => {
                    sections.push(Self::new(title, table, item.span(), self.sink));
                }
                other => {
                    self.wrong_type::<()>(key, item.span(), other, &expected);
                }
            }
        }
        sections
    }

    /// Refuses keys that exist but make no sense here.
    pub fn forbid(&mut self, keys: &[&'static str], why: &str) {
        self.forbid_or(keys, why, "remove the line");
    }

    /// The same, where there is more that may be meant.
    pub fn forbid_or(&mut self, keys: &[&'static str], why: &str, remedy: &str) {
        for key in keys {
            if self.table.contains_key(*key) {
                let span = self.key_span(key);
                self.report(&span, format!("`{key}` has no meaning {why}"), remedy);
            }
        }
        self.ignore(keys);
    }

    /// Says nothing of keys, whatever they are.
    pub fn ignore(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// Reports every key that was not asked for.
    pub fn finish(self) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if !self.known.contains(&name) {
                let cause = format!("unknown key `{name}` in {}", self.title);
                self.report(&key.span(), cause, self.suggestion(name));
            }
        }
    }

    fn suggestion(&self, name: &str) -> String {
        let close = |known: &&&str| strsim::normalized_damerau_levenshtein(known, name);
        let best = self.known.iter().max_by(|a, b| close(a).total_cmp(&close(b)));
        let is_close = |best: &&&str| close(best) > 0.6;
        match (best.filter(is_close), self.sink.is_top_level(name)) {
            (Some(best), false) => format!("did you mean `{best}`?"),
            // What follows a section is of that section.
            (Some(best), true) => {
                format!("move it to above the first section, or did you mean `{best}`?")
            }
            (None, true) => "move it to above the first section".to_owned(),
            (None, false) => format!("remove it, or use one of: {}", self.known.join(", ")),
        }
    }

    fn value(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        if self.title == TOP_LEVEL {
            self.sink.note_top_level(key);
        }
        self.table.get(key)
    }

    fn key_span(&self, name: &str) -> Range<usize> {
        let key = self.table.keys().find(|key| key.get_ref() == name);
        key.map_or_else(|| self.span.clone(), Spanned::span)
    }

    fn wrong_type<T>(
        &self,
        key: &str,
        span: Range<usize>,
        found: &DeValue<'_>,
        expected: &str,
    ) -> Option<T> {
        let cause = format!("`{key}` in {} is {}", self.title, found.type_str());
        self.report(&span, cause, format!("write {expected}"));
        None
    }
}
