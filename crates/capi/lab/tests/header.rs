//! Generates `include/clearway_lab.h` from this crate, and compares it with the committed file byte
//! for byte. After a change of the ABI:
//! `CLEARWAY_WRITE_HEADER=1 cargo test -p clearway-lab-capi --test header`.

use std::path::{Path, PathBuf};

use cbindgen::{Builder, Language, Style};

const SOURCES: [&str; 5] = ["host", "calls", "options", "wait", "info"];

/// What C knows as structures.
const STRUCTURES: [&str; 3] = ["sockaddr", "pollfd", "epoll_event"];

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
    let path = folder().join("include/clearway_lab.h");
    let generated = generate();
    if std::env::var_os("CLEARWAY_WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "{} is out of date; run this test with CLEARWAY_WRITE_HEADER=1 and commit the file",
        path.display()
    );
}

fn generate() -> String {
    let mut config = cbindgen::Config { usize_is_size_t: true, ..Default::default() };
    for name in STRUCTURES {
        config.export.rename.insert(name.to_owned(), format!("struct {name}"));
    }
    let mut builder = Builder::new()
        .with_config(config)
        .with_language(Language::C)
        .with_style(Style::Tag)
        .with_cpp_compat(true)
        .with_documentation(true)
        .with_include_guard("CLEARWAY_LAB_H")
        .with_header(INTRODUCTION)
        .with_no_includes();
    for include in ["poll.h", "stddef.h", "stdint.h", "sys/epoll.h", "sys/socket.h"] {
        builder = builder.with_sys_include(include);
    }
    for source in SOURCES {
        builder = builder.with_src(folder().join(format!("src/{source}.rs")));
    }
    let mut bytes = Vec::new();
    builder.generate().expect("this crate's own source").write(&mut bytes);
    without_safety_sections(&String::from_utf8(bytes).expect("text"))
}

/// Sections on safety are for readers of the Rust source.
fn without_safety_sections(text: &str) -> String {
    let mut kept = String::new();
    let mut inside = false;
    for line in text.lines() {
        let bare = line.trim();
        inside = (inside || bare == "* # Safety") && bare != "*/";
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept.replace(" *\n */", " */")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
