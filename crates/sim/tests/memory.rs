//! What hosts and flows take of memory, counted allocation by allocation: the same in each run. The
//! figures of `docs/scale.md` are what this prints with `CLEARWAY_SCALE` set, which is for many
//! more of them.
//!
//! One test only: another one at the same time would be counted, too.

use clearway_sim::scale::{flow_memory_bytes, host_memory};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn heap_bytes() -> u64 {
    ALLOCATOR.current_usage() as u64
}

#[test]
fn memory_grows_with_hosts_and_flows_and_with_nothing_else() {
    let is_long = std::env::var_os("CLEARWAY_SCALE").is_some();
    let hosts: &[usize] = if is_long { &[2, 10, 100, 1_000] } else { &[2, 60] };
    let flows: &[u64] = if is_long { &[100, 1_000, 10_000, 100_000] } else { &[100, 1_000] };
    let memory_of = |hosts: &usize| {
        let memory = host_memory(*hosts, &heap_bytes);
        println!("{memory:?}");
        memory
    };
    let memory: Vec<_> = hosts.iter().map(memory_of).collect();
    let (few, many) = (memory[0], memory[memory.len() - 1]);
    assert!(many.engine_bytes < 2 * few.engine_bytes, "{few:?} {many:?}");
    let others_bytes = 500 * many.hosts as u64;
    assert!(many.connections_bytes < few.connections_bytes + others_bytes, "{few:?} {many:?}");
    for are_shared in [false, true] {
        let bytes_of = |flows: &u64| {
            let bytes = flow_memory_bytes(*flows, are_shared, &heap_bytes);
            let kind = if are_shared { "sharing flows" } else { "with a flow each" };
            println!("{flows} connections {kind}: {bytes} bytes each, both ends together");
            bytes
        };
        let bytes: Vec<u64> = flows.iter().map(bytes_of).collect();
        let bytes_max = if are_shared { 5_000 } else { 10_000 };
        assert!(bytes.iter().all(|bytes| (500..bytes_max).contains(bytes)), "{bytes:?}");
    }
}
