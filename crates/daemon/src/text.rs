//! Text that somebody else has written, made fit for a log and for a terminal.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};

/// The text with everything written out (`\u001b`) that could end a line, move the cursor, or show
/// characters in another order than they stand: so it cannot pass for a line of somebody else. What
/// is written out stays what it was where the text is JSON.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, |_| false)
}

/// The same, but lines stay lines: for what we have put together ourselves.
#[must_use]
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escaped_but(text, |character| character == '\n')
}

/// Writes a text to standard output. Names in it are whatever their owners like, and do nothing to
/// the terminal; what stands in a line has to be escaped before. A reader that has seen enough
/// (`| head`) is no failure.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(escaped_lines(text).as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn escaped_but(text: &str, is_fine: impl Fn(char) -> bool) -> Cow<'_, str> {
    let escapes = |character: char| is_deceptive(character) && !is_fine(character);
    if !text.contains(escapes) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if escapes(character) {
            result += &format!("\\u{:04x}", u32::from(character));
        } else {
            result.push(character);
        }
    }
    Cow::Owned(result)
}

/// Control characters; marks and overrides of the direction of writing, separators of lines, and
/// characters of no width (Unicode Standard Annex #9, section 2; Unicode chapter 23).
fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deceives_is_written_out_and_all_else_stays() {
        for fine in ["", "eth0/1", "Grüße, 世界", "a \"b\" \\"] {
            assert_eq!(escaped(fine), fine);
        }
        assert_eq!(escaped("a\nINFO b"), "a\\u000aINFO b");
        assert_eq!(escaped("\x1b[2J\r\t\0\u{9b}"), "\\u001b[2J\\u000d\\u0009\\u0000\\u009b");
        assert_eq!(escaped("a\u{202e}b\u{2066}\u{feff}"), "a\\u202eb\\u2066\\ufeff");
        assert_eq!(escaped_lines("a\nb\x1b"), "a\nb\\u001b");
    }

    /// What was not escaped by JSON's own rules is the same text afterwards.
    #[test]
    fn json_stays_the_same() {
        let json = serde_json::to_string("a\u{9b}\u{202e}\x7f").expect("JSON");
        let read: String = serde_json::from_str(&escaped(&json)).expect("JSON");
        assert_eq!(read, "a\u{9b}\u{202e}\x7f");
    }
}
