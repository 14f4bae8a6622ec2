//! An app that writes any bytes into its channel: entries of the submission ring, whose turns are
//! made right so that they are looked at, and bursts of frames in the transmit pool. The daemon's
//! end gives values within bounds or a violation, and never panics.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;

use clearway_channel::burst::SentBurst;
use clearway_channel::{CHANNEL_MEMORY, Command, DaemonEnd, Description, Sizes};
use libfuzzer_sys::fuzz_target;

const ENTRIES: usize = 16;
const ENTRY_BYTES: usize = 64;
/// Where ring and pool start with these sizes: `channel/src/layout.rs`.
const SUBMISSION_RING: u64 = 8192;
const TRANSMIT_POOL: u64 = 16_384;
const POOL_BYTES: u32 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let sizes = Sizes {
        submission_entries: ENTRIES as u32,
        completion_entries: ENTRIES as u32,
        transmit_pool_bytes: POOL_BYTES,
        receive_pool_bytes: POOL_BYTES,
        shared_bytes: 1 << 12,
    };
    let (mut end, handover) = DaemonEnd::create(sizes).expect("memory for a small channel");
    let memory = File::from(handover.memory);
    memory.write_all_at(bytes, TRANSMIT_POOL).expect("the app may write there");
    for (index, entry) in bytes.chunks_exact(ENTRY_BYTES).enumerate() {
        let turn = (1 + index / ENTRIES) as u32;
        let at = SUBMISSION_RING + (index % ENTRIES * ENTRY_BYTES) as u64;
        memory.write_all_at(&entry[4..], at + 4).expect("the app may write there");
        memory.write_all_at(&turn.to_ne_bytes(), at).expect("the app may write there");
        match end.next_command() {
            Ok(Some(command)) => {
                if !serve(&mut end, command) {
                    return;
                }
            }
            Ok(None) => panic!("an entry of this turn was not seen"),
            Err(_) => return,
        }
    }
});

/// Does what an engine does with a command. False if the app has broken the contract.
fn serve(end: &mut DaemonEnd, command: Command) -> bool {
    match command {
        Command::Send { offset, length, .. } => {
            assert!(u64::from(offset) + u64::from(length) <= u64::from(POOL_BYTES));
            end.read(offset, &mut vec![0; length as usize]);
            end.sends_finished(1);
            true
        }
        Command::SendFrames { offset, length, count, .. } => {
            let mut burst = SentBurst::new(offset, length, count);
            let mut copy = vec![0; length as usize];
            end.read(offset, &mut copy);
            loop {
                match burst.next_copied(&copy, offset) {
                    Ok(Some(frame)) => {
                        let at = (frame.offset - offset) as usize;
                        assert!(copy.get(at..at + frame.length as usize).is_some());
                    }
                    Ok(None) => break,
                    Err(_) => return false,
                }
            }
            end.sends_finished(1);
            true
        }
        Command::Release { buffers } => {
            buffers.as_slice().iter().all(|id| end.release(*id).is_ok())
        }
        Command::TcpSend { offset, length, .. } => {
            end.read(offset, &mut vec![0; length as usize]);
            end.sends_finished(1);
            true
        }
        Command::Share { offset, length, .. } | Command::ShareMemory { offset, length, .. } => {
            let mut bytes = vec![0; length as usize];
            end.read(offset, &mut bytes);
            if let Some(description) = Description::of(&bytes) {
                let again = description.to_bytes().and_then(|bytes| Description::of(&bytes));
                assert_eq!(again, Some(description));
            }
            true
        }
        // Where a posted buffer begins and ends, a message is written.
        Command::Post { memory, start, bytes, .. } => {
            let Some(shared) = end.memory(memory) else { return true };
            let last = start.checked_add(bytes);
            let fits = last.is_some_and(|last| last <= shared.length());
            let ends = bytes.min(POOL_BYTES.into());
            assert!(!fits || shared.write(start, &vec![7; ends as usize]));
            assert_eq!(last.is_some_and(|last| shared.write(last, &[])), fits);
            true
        }
        Command::AskWith { offset, length, place, .. } => {
            let shared = end.memory(CHANNEL_MEMORY).expect("always there").clone();
            let last = place.checked_add(length.into());
            let fits = last.is_some_and(|last| last <= shared.length());
            assert_eq!(end.share_sent(offset, length, &shared, place), fits);
            true
        }
        _ => true,
    }
}
