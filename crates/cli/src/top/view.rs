//! What stands where: who is looked at, a table, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::counted::Health;
use super::table::{Order, Table};
use super::{Top, View};
use crate::output::fit::{columns, fit};
use crate::status::duration;

const KEYS: &str = "n e a f  view   < >  order   r  reverse   up down  scroll   q  quit";

pub(super) fn draw(frame: &mut Frame<'_>, top: &Top) {
    let rows = [1, 1, 1].map(Constraint::Length).into_iter();
    let rows = rows.chain([Constraint::Min(1), Constraint::Length(1)]);
    let [host, views, trouble, table, keys] =
        <[_; 5]>::try_from(&*Layout::vertical(rows).split(frame.area())).expect("five parts");
    frame.render_widget(host_line(&top.counted.health), host);
    frame.render_widget(view_line(top), views);
    frame.render_widget(Line::styled(troubles(top), Modifier::BOLD), trouble);
    let width = usize::from(table.width);
    let lines = lines(top.table(), top.order(), top.scroll, width, usize::from(table.height));
    frame.render_widget(Paragraph::new(lines), table);
    frame.render_widget(Line::styled(KEYS, Modifier::DIM), keys);
}

fn host_line(health: &Health) -> Line<'static> {
    match health {
        Health::Alive { version, process, up } => Line::raw(format!(
            "clearway {version}, process {process}, up {}",
            duration(up.as_secs())
        )),
        Health::Dead { process, since } => Line::styled(
            format!("the daemon, process {process}, has ended, {} ago", duration(since.as_secs())),
            Modifier::REVERSED,
        ),
        Health::None(why) => Line::styled(why.clone(), Modifier::REVERSED),
    }
}

fn view_line(top: &Top) -> Line<'static> {
    let names = View::ALL.iter().flat_map(|view| {
        let style = if *view == top.view { Modifier::REVERSED } else { Modifier::empty() };
        [Span::styled(format!(" {} ", view.name()), Style::from(style)), Span::raw(" ")]
    });
    Line::from(names.collect::<Vec<_>>())
}

/// What keeps the table from being whole.
fn troubles(top: &Top) -> String {
    let asked = &top.asked;
    let omitted = match top.view {
        View::Apps => asked.apps_omitted,
        View::Flows => asked.flows_omitted,
        View::Nics | View::Engines => 0,
    };
    match (top.view.asks(), &asked.trouble, omitted) {
        (true, Some(trouble), _) => trouble.clone(),
        (_, _, 1..) => format!("{omitted} more did not fit in the answer"),
        _ => String::new(),
    }
}

/// The titles, then as many rows as there is room for.
fn lines(
    table: Table,
    order: Order,
    scroll: usize,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let titles = table.columns;
    let is_number: Vec<bool> = titles.iter().map(|title| title.starts_with('#')).collect();
    let yields: Vec<bool> = is_number.iter().map(|is_number| !is_number).collect();
    let shown = table.rows.iter().skip(scroll).take(height.saturating_sub(1));
    let mut rows: Vec<Vec<String>> =
        shown.map(|row| row.iter().map(|cell| cell.shown()).collect()).collect();
    fit(titles, &yields, &mut rows, width);
    let title = |column: usize| titles[column].trim_start_matches('#').to_uppercase();
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| {
            let cells = rows.iter().map(|row| columns(&row[column]));
            cells.max().unwrap_or(0).max(columns(&title(column)))
        })
        .collect();
    let padded = |text: &str, column: usize| {
        let blanks = " ".repeat(widths[column].saturating_sub(columns(text)));
        if is_number[column] { blanks + text } else { text.to_owned() + &blanks }
    };
    let heads = (0..titles.len()).flat_map(|column| {
        let style = if column == order.column { Modifier::REVERSED } else { Modifier::BOLD };
        [
            Span::raw(if column == 0 { " " } else { "  " }),
            Span::styled(padded(&title(column), column), style),
        ]
    });
    let mut lines = vec![Line::from(heads.collect::<Vec<_>>())];
    lines.extend(rows.iter().map(|row| {
        let cells = row.iter().enumerate().map(|(column, cell)| padded(cell, column));
        Line::raw(format!(" {}", cells.collect::<Vec<_>>().join("  ")))
    }));
    lines
}
