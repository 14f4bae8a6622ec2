//! Generates `include/clearway.h` from this crate and the list of codes, and compares it with the
//! committed file byte for byte. After a change of the ABI:
//! `CLEARWAY_WRITE_HEADER=1 cargo test -p clearway-capi --test header`.

#[path = "support/header.rs"]
mod header;

use std::fmt::Write as _;
use std::path::Path;

use cbindgen::Style;
use clearway_client::{BURST_FRAMES_MAX, Code, FrameRefusal, OperationStatus, Unposted};

const SOURCES: [&str; 12] = [
    "attach",
    "connect",
    "streams",
    "message",
    "posts",
    "tcp",
    "vif",
    "region",
    "operation",
    "event",
    "calls",
    "failure",
];

const INTRODUCTION: &str = "\
/* Clearway: reliable messages between apps on different hosts (or on one), through the daemon of
 * each host, over shared memory. Names follow sockets: attach, listen, connect, accept, send, recv,
 * close.
 *
 * Results    Functions that can fail return a negative error code (CLEARWAY_...);
 *            clearway_strerror and clearway_last_error say what it means and what to do.
 * Times      Timeouts are in nanoseconds. 0 does not wait (CLEARWAY_WOULD_BLOCK); a negative one,
 *            CLEARWAY_FOREVER, waits as long as it takes. What the daemon itself is asked for (a
 *            channel, ports, interfaces, memory) it gives in a moment; if it does not answer, the
 *            call ends after ten seconds (CLEARWAY_TIMED_OUT), also one without a timeout.
 * Sizes      In bytes. A message has 0 to 8 MiB, arrives once, complete, and in order.
 * Streams    A connection may have streams (clearway_open_stream): connections that share its way
 *            to the peer and nothing else, so that none waits for another's messages.
 * TCP        Connections to any peer, by a stack that is the daemon's: clearway_tcp_listen and
 *            clearway_tcp_connect, bytes instead of messages.
 * Frames     A program that brings its own protocol opens a virtual interface (clearway_vif_open)
 *            and sends and receives raw Ethernet frames. They may be lost, as on any wire.
 * Operations An app shares memory (clearway_share), and others read and change it by one-sided
 *            operations (clearway_operate), for which none of its threads runs.
 * Calls      Requests and answers on top of messages (clearway_call, clearway_next_call_event): a
 *            channel that makes calls makes nothing else.
 * Threads    A channel is for one thread at a time; threads that all want to talk attach a channel
 *            each. Messages, bytes, frames and what operations have read may be read and released
 *            in any thread, and buffers filled and discarded: with NULL for the channel if another
 *            thread has that. If it waits in a call, or on clearway_fd, it is woken, and gives them
 *            back; else its next call does. Error texts are per thread. Signals do not disturb:
 *            calls go on waiting.
 * Fork       A channel does not survive fork() in the child; attach there.
 *
 * Generated from crates/capi by its test `header`. Do not edit.
 */";

#[test]
fn the_committed_header_is_what_the_code_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::default();
    let builder = header::builder(config, Style::Both, "CLEARWAY_H", INTRODUCTION)
        .include_item("clearway_waiting")
        .include_item("clearway_event_kind")
        .include_item("clearway_ended")
        .include_item("clearway_tcp_ready_bits")
        .include_item("clearway_tcp_option")
        .include_item("clearway_operation_kind")
        .include_item("clearway_right")
        .include_item("clearway_grantee")
        .include_item("clearway_call_event_kind")
        .include_item("clearway_call_outcome")
        .include_item("clearway_refusal")
        .with_sys_include("stddef.h")
        .with_sys_include("stdint.h")
        .with_after_include(codes());
    let generated = header::generate(builder, folder, &SOURCES);
    header::check(&folder.join("include/clearway.h"), &generated);
}

/// Constants, and the lists of codes and reasons as enumerations.
fn codes() -> String {
    let mut text = format!(
        "\n/* A timeout that never comes. */\n#define CLEARWAY_FOREVER (-1)\n\n\
         /* The most frames that are received at a time. */\n\
         #define CLEARWAY_FRAMES_MAX {BURST_FRAMES_MAX}\n\n\
         /* An entry of a table: where in a region (40 bits), and how many bytes (24 bits). */\n\
         #define CLEARWAY_ENTRY(offset, length) \\\n  \
           ((uint64_t)(offset) | (uint64_t)(length) << 40)\n\n\
         /* Why a call failed. */\nenum clearway_code {{\n",
    );
    for code in Code::ALL {
        let (comment, name) = (comment(code.text()), shouting(code.name()));
        writeln!(text, "{comment}\n  CLEARWAY_{name} = {},", code.as_i32()).unwrap();
    }
    text.push_str("};\n\n/* Why a frame was not sent. */\nenum clearway_refused {\n");
    for reason in FrameRefusal::ALL {
        let (comment, name) = (comment(reason.text()), shouting(reason.name()));
        let number = reason.as_u8();
        writeln!(text, "{comment}\n  CLEARWAY_REFUSED_{name} = {number},").unwrap();
    }
    text.push_str("};\n\n/* What came of a one-sided operation. */\nenum clearway_status {\n");
    for status in OperationStatus::ALL {
        let (comment, name) = (comment(status.text()), shouting(status.name()));
        writeln!(text, "{comment}\n  CLEARWAY_STATUS_{name} = {},", *status as u8).unwrap();
    }
    text.push_str("};\n\n/* Why no message lies in a posted buffer. */\n");
    text.push_str("enum clearway_unposted {\n");
    for why in Unposted::ALL {
        let (comment, name) = (comment(why.text()), shouting(why.name()));
        writeln!(text, "{comment}\n  CLEARWAY_UNPOSTED_{name} = {},", *why as u8).unwrap();
    }
    text.push_str("};\n");
    text
}

/// `WouldBlock` as `WOULD_BLOCK`.
fn shouting(name: &str) -> String {
    let mut shouted = String::new();
    for (index, letter) in name.char_indices() {
        if letter.is_uppercase() && index > 0 {
            shouted.push('_');
        }
        shouted.extend(letter.to_uppercase());
    }
    shouted
}

/// A sentence in front of a value, in lines of at most 100 columns.
fn comment(text: &str) -> String {
    let mut lines = vec!["  /*".to_owned()];
    for word in format!("{}.", sentence(text)).split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + " ".len() + word.len() + " */".len() <= 100 => {
                *line += &format!(" {word}")
            }
            _ => lines.push(format!("   * {word}")),
        }
    }
    lines.join("\n") + " */"
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}
