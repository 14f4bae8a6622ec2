//! On a real terminal: this test program starts itself on one.

use super::*;
use crate::terminal::Pty;

/// What the other test runs on a terminal of its own.
#[test]
#[ignore = "is started by a_panic_gives_the_terminal_back"]
fn panics_on_a_screen() {
    let mut screen = Screen::open().expect("a terminal");
    screen.draw(|frame| frame.render_widget("drawn", frame.area())).expect("drawn");
    // In another thread, which the one that draws would not notice.
    let _ = thread::spawn(|| panic!("as it was to be")).join();
    unreachable!("the program has ended");
}

#[test]
fn a_panic_gives_the_terminal_back() {
    let program = std::env::current_exe().expect("this program");
    let name = "top::screen::tests::panics_on_a_screen";
    let arguments = [name, "--exact", "--ignored", "--nocapture"];
    let mut terminal = Pty::run(&program, &arguments);
    let code = terminal.end();
    assert_eq!(code, Some(101));
    assert!(terminal.was_taken(), "it was drawn on");
    assert!(terminal.is_as_before(), "{}", terminal.text());
    assert!(terminal.text().contains("as it was to be"), "{}", terminal.text());
}
