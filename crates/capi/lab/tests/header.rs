//! Generates `include/clearway_lab.h` from this crate, and compares it with the committed file byte
//! for byte. After a change of the ABI:
//! `CLEARWAY_WRITE_HEADER=1 cargo test -p clearway-lab-capi --test header`.

#[path = "../../tests/support/header.rs"]
mod header;

use std::path::Path;

use cbindgen::Style;

const SOURCES: [&str; 5] = ["host", "calls", "options", "wait", "info"];

/// What C knows as structures.
const STRUCTURES: [&str; 4] = ["sockaddr", "msghdr", "pollfd", "epoll_event"];

const INTRODUCTION: &str = "\
/* The lab of Clearway: hosts of its TCP stack in one process, with a clock that only the program
 * moves. docs/lab.md explains it.
 *
 * Results    Negative error numbers of Linux (-EAGAIN), else what each call says. errno is not
 *            touched.
 * Hosts      Numbers above 0. What is no host, or no descriptor of it, is -EBADF.
 * Times      In ns, but for the timeouts of poll and epoll, which are in ms. All are of the host's
 *            clock, which stands still but for clearway_lab_advance and clearway_lab_run.
 * Packets    IPv4 and IPv6, from the IP header on, with right checksums.
 * Threads    Every call may come from any thread. Those that wait do so until another thread lets
 *            time pass or puts a packet in; and that returns when they are done.
 *
 * Generated from crates/capi/lab by its test `header`. Do not edit.
 */";

#[test]
fn the_committed_header_is_what_the_code_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::default();
    for name in STRUCTURES {
        config.export.rename.insert(name.to_owned(), format!("struct {name}"));
    }
    let mut builder = header::builder(config, Style::Tag, "CLEARWAY_LAB_H", INTRODUCTION);
    for include in ["poll.h", "stddef.h", "stdint.h", "sys/epoll.h", "sys/socket.h"] {
        builder = builder.with_sys_include(include);
    }
    let generated = header::generate(builder, folder, &SOURCES);
    header::check(&folder.join("include/clearway_lab.h"), &generated);
}
