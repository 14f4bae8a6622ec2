//! Words of a filter, with their columns.

use super::{FilterError, TEXT_BYTES_MAX};

/// A word, or one of the signs `( ) [ ] & =`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) column: usize,
}

/// The words of a text in order.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    end_column: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Result<Self, FilterError> {
        if text.len() > TEXT_BYTES_MAX {
            let problem = format!("the filter has {} bytes", text.len());
            let remedy = format!("at most {TEXT_BYTES_MAX} are read: make several filters of it");
            return Err(FilterError::new(1, problem, remedy));
        }
        let end_column = text.chars().count() + 1;
        Ok(Self { tokens: split(text), next: 0, end_column })
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).map(|token| token.text)
    }

    /// Where the next word stands, or the end of the text.
    pub(super) fn column(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end_column, |token| token.column)
    }

    /// The next word, which has to be there; `wanted` says what it should be.
    pub(super) fn take(&mut self, wanted: &str) -> Result<Token<'a>, FilterError> {
        let Some(&token) = self.tokens.get(self.next) else {
            let problem = "the filter ends here";
            return Err(FilterError::new(self.end_column, problem, format!("write {wanted}")));
        };
        self.next += 1;
        Ok(token)
    }

    /// Takes the next word if it is `word`.
    pub(super) fn accept(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        self.next += usize::from(is_next);
        is_next
    }

    /// Takes the next word, which has to be `sign`.
    pub(super) fn expect(&mut self, sign: &str) -> Result<(), FilterError> {
        let column = self.column();
        if self.accept(sign) {
            return Ok(());
        }
        let problem = match self.peek() {
            Some(word) => format!("`{word}` stands where `{sign}` should"),
            None => format!("`{sign}` is missing"),
        };
        Err(FilterError::new(column, problem, format!("write `{sign}`")))
    }
}

fn split(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut word: Option<(usize, usize)> = None;
    let characters = text.char_indices().chain([(text.len(), ' ')]);
    for (index, (at, character)) in characters.enumerate() {
        let is_sign = "()[]&=".contains(character);
        if !character.is_whitespace() && !is_sign {
            word.get_or_insert((at, index + 1));
            continue;
        }
        if let Some((start, column)) = word.take() {
            tokens.push(Token { text: &text[start..at], column });
        }
        if is_sign {
            tokens.push(Token { text: &text[at..=at], column: index + 1 });
        }
    }
    tokens
}
