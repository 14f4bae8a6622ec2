//! What hosts and flows take of memory, counted allocation by allocation: the same in each run. The figures
//! of `docs/scale.md` are what this prints.
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
    let [two, hundred] = [2, 100].map(|hosts| {
        let memory = host_memory(hosts, &heap_bytes);
        println!("{memory:?}");
        memory
    });
    assert!(hundred.engine_bytes < 2 * two.engine_bytes, "{two:?} {hundred:?}");
    assert!(hundred.connections_bytes < 2 * two.connections_bytes, "{two:?} {hundred:?}");
    let [hundred, thousand] = [100, 1_000].map(|flows| {
        let bytes = flow_memory_bytes(flows, &heap_bytes);
        println!("{flows} flows: {bytes} bytes each, both ends together");
        bytes
    });
    assert!(thousand < 2 * hundred && thousand < 20_000, "{hundred} {thousand}");
}
