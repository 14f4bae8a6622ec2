//! What is wrong with a configuration, said so that it can be put right.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1; 0 if the problem is not in a line.
    pub line: usize,
    /// The character in that line, counted from 1; 0 if the problem is not in a line.
    pub column: usize,
    /// What is wrong.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}

/// Everything that is wrong with a configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file's name as the user gave it.
    pub file: String,
    /// What is wrong; never empty.
    pub list: Vec<Problem>,
}

impl Problems {
    /// A problem with the file as a whole.
    #[must_use]
    pub fn file(file: &str, cause: String, remedy: &str) -> Self {
        let problem = Problem { line: 0, column: 0, cause, remedy: remedy.to_owned() };
        Self { file: file.to_owned(), list: vec![problem] }
    }

    /// A file of bytes that are no text.
    pub(super) fn no_text(file: &str, error: &std::string::FromUtf8Error) -> Self {
        let up_to = error.utf8_error().valid_up_to();
        let text = str::from_utf8(&error.as_bytes()[..up_to]).unwrap_or_default();
        let (line, column) = place(text, up_to);
        let cause = "this is not TOML: here are bytes that are not UTF-8".to_owned();
        let remedy = "save the file as UTF-8, or write that character anew".to_owned();
        Self { file: file.to_owned(), list: vec![Problem { line, column, cause, remedy }] }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match problem.line {
                0 => write!(f, "{}: {}", self.file, problem.cause)?,
                line => write!(f, "{}:{line}:{}: {}", self.file, problem.column, problem.cause)?,
            }
            if !problem.remedy.is_empty() {
                write!(f, "\n    remedy: {}", problem.remedy)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Gathers problems while the file is read. Shared by all sections of one file.
#[derive(Debug)]
pub(super) struct Sink<'t> {
    text: &'t str,
    list: std::cell::RefCell<Vec<Problem>>,
    /// Keys of the top level.
    top: std::cell::RefCell<Vec<&'static str>>,
}

impl<'t> Sink<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, list: Default::default(), top: Default::default() }
    }

    /// There is a key of that name above all sections.
    pub(super) fn note_top_level(&self, key: &'static str) {
        self.top.borrow_mut().push(key);
    }

    /// Whether there is.
    pub(super) fn is_top_level(&self, key: &str) -> bool {
        self.top.borrow().contains(&key)
    }

    /// Notes a problem at a place in the text.
    pub(super) fn report(
        &self,
        span: &Range<usize>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (line, column) = place(self.text, span.start);
        let problem = Problem { line, column, cause: cause.into(), remedy: remedy.into() };
        self.list.borrow_mut().push(problem);
    }

    /// The offset of a character (counted from 1) of a string that stands at `span`. If it is
    /// written with escapes, where it begins.
    pub(super) fn place_within(&self, span: &Range<usize>, value: &str, column: usize) -> usize {
        let raw = self.text.get(span.clone()).unwrap_or_default();
        let Some(start) = raw.find(value) else { return span.start };
        let mut characters = value.char_indices().map(|(at, _)| at);
        span.start + start + characters.nth(column - 1).unwrap_or(value.len())
    }

    /// All problems, or none.
    pub(super) fn finish(&self, file: &str) -> Result<(), Problems> {
        let mut list = self.list.take();
        list.sort_by_key(|problem| (problem.line, problem.column));
        if list.is_empty() { Ok(()) } else { Err(Problems { file: file.to_owned(), list }) }
    }
}

/// Line and column of an offset.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
    (line, 1 + before[line_start..].chars().count())
}
