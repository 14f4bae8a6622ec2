//! What fits on a terminal: tables whose widest cells are shortened, with a sign that they are, and
//! texts in lines.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Columns of a terminal that nobody has made wider.
pub(crate) const TERMINAL_COLUMNS: usize = 80;
/// Stands where something was left out.
const CUT: char = '…';
/// Blanks between two columns of a table; before the first, there is one. See [`super::table`].
const GAP: usize = 2;
/// No cell gets shorter than that.
const CELL_COLUMNS_MIN: usize = 8;

/// Columns that a text takes on a terminal.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Shortens cells of the columns in `yielding` until a table with these titles takes at most
/// `width` columns: always those of the widest. False if that is not enough.
pub(crate) fn fit(
    titles: &[&str],
    yielding: &[bool],
    rows: &mut [Vec<String>],
    width: usize,
) -> bool {
    let title = |column: usize| columns(titles[column].trim_start_matches('#'));
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| columns(&row[column]));
        cells.max().unwrap_or(0).max(title(column))
    };
    let mut widths: Vec<usize> = (0..titles.len()).map(widest).collect();
    let gaps = (GAP * titles.len()).saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        let least = |column: usize| title(column).max(CELL_COLUMNS_MIN);
        let may = |column: &usize| yielding[*column] && widths[*column] > least(*column);
        let Some(column) = (0..widths.len()).filter(may).max_by_key(|column| widths[*column])
        else {
            return false;
        };
        widths[column] -= 1;
    }
    for row in rows {
        for (cell, width) in row.iter_mut().zip(&widths) {
            *cell = shortened(cell, *width);
        }
    }
    true
}

/// The text in `width` columns at most, with a sign where something is missing.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    format!("{}{CUT}", taken(text.chars(), width.saturating_sub(1)))
}

/// As many characters as fit in `width` columns.
fn taken(characters: impl Iterator<Item = char>, width: usize) -> String {
    let mut left = width;
    let fits = |character: &char| {
        let columns = character.width().unwrap_or(0);
        let fits = columns <= left;
        left = left.saturating_sub(columns);
        fits
    };
    characters.take_while(fits).collect()
}

/// A paragraph in lines of `width` columns at most, the first with the blanks that it begins with,
/// the others indented. A word that is longer than a line goes on in the next.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let blanks = text.len() - text.trim_start().len();
    let (mut lines, mut line) = (Vec::new(), " ".repeat(blanks));
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        if !line.trim().is_empty() && columns(&line) + 1 + columns(&word) <= width {
            line += " ";
        } else if !line.trim().is_empty() {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        }
        while columns(&line) + columns(&word) > width {
            let head = taken(word.chars(), width - columns(&line));
            word = word[head.len()..].to_owned();
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)) + &head);
        }
        line += &word;
    }
    lines.push(line);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_says_so_and_what_fits_stays() {
        assert_eq!(shortened("web", 8), "web");
        assert_eq!(shortened("webserver-1", 8), "webserv…");
        assert_eq!(shortened("世界世界世界", 8), "世界世…");
    }

    #[test]
    fn the_widest_column_gives_way() {
        let mut rows = vec![vec!["a".repeat(30), "1".to_owned(), "b".repeat(50)]];
        let titles = ["app", "#n", "name"];
        assert!(fit(&titles, &[true, false, true], &mut rows, 40));
        let widths: Vec<usize> = rows[0].iter().map(|cell| columns(cell)).collect();
        assert_eq!(widths, [17, 1, 17], "{rows:?}");
        assert!(rows[0][0].ends_with(CUT) && rows[0][2].ends_with(CUT));
        let before = rows.clone();
        assert!(fit(&titles, &[false; 3], &mut rows, 40) && rows == before, "it fits");
        assert!(!fit(&titles, &[false; 3], &mut rows, 39) && rows == before, "nothing may go");
    }

    #[test]
    fn paragraphs_keep_all_their_characters() {
        let text = format!("the socket {} is there", "x".repeat(50));
        let lines = wrapped(&text, 20, 2);
        assert!(lines.lines().all(|line| columns(line) <= 20), "{lines}");
        let all = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(all(&lines), all(&text));
        assert_eq!(wrapped("  a b c", 5, 3), "  a b\n   c\n");
    }
}
