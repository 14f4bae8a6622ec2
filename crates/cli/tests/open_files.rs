//! What apps take of the daemon's open files, and what it does where there are few, or where files
//! may not be large.

mod support;

use clearway_client::{Channel, Sizes};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Network, SMALL, eventually};

/// What a user may have on a large machine.
const CHANNELS: usize = 2048;

/// The soft limit that most programs are started with is raised by the daemon itself.
#[test]
fn two_thousand_channels_of_one_user_are_served() {
    // This process has five for each channel.
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit");
    let policy = "[policy.limits]\nsessions_total = 3000\n";
    let limits = format!("{policy}channels_per_user = {CHANNELS}\nchannels_total = {CHANNELS}\n");
    let network = Network::with_limit("nofile=1024:10000", &limits);
    let sizes = Sizes {
        submission_entries: 16,
        completion_entries: 16,
        transmit_pool_bytes: 1 << 16,
        receive_pool_bytes: 1 << 16,
        shared_bytes: 0,
    };
    let before = open_files(&network);
    let attach = |number| match network.server.try_attach("one of many", sizes) {
        Ok(channel) => channel,
        Err(error) => panic!("channel {number}: {error}"),
    };
    let mut channels: Vec<Channel> = (1..=CHANNELS).map(attach).collect();
    let taken = open_files(&network) - before;
    assert!(taken <= 4 * CHANNELS, "{taken} open files for {CHANNELS} channels");
    // The last is served as the first is, and one more is refused by the limit that says so.
    for channel in [0, CHANNELS - 1] {
        channels[channel].listen(0).expect("listening");
    }
    let Err(refused) = network.server.try_attach("one too many", sizes) else {
        panic!("over the limit")
    };
    assert!(refused.to_string().contains("channels_"), "{refused}");
    let log = network.server.log();
    assert!(!log.contains("fewer open files"), "{log}");
    drop(channels);
    eventually("all are given back", || open_files(&network) <= before + 4);
}

fn open_files(network: &Network) -> usize {
    let directory = format!("/proc/{}/fd", network.server.process_id());
    std::fs::read_dir(directory).expect("root may look").count()
}

/// Before somebody finds out by being refused.
#[test]
fn a_daemon_whose_limit_is_too_low_says_so() {
    let limits = "[policy.limits]\nchannels_total = 300\nsessions_total = 400\n";
    let network = Network::with_limit("nofile=512:1363", limits);
    let log = network.server.log();
    assert!(log.contains("fewer open files than [policy.limits]"), "{log}");
    assert!(log.contains("limit=1363 wanted=1364") && log.contains("LimitNOFILE="), "{log}");
    let network = Network::with_limit("nofile=512:1364", limits);
    let log = network.server.log();
    assert!(!log.contains("fewer open files"), "{log}");
}

/// The memory of a channel has a file's size. The daemon does not die of that, and serves whom it
/// can.
#[test]
fn who_wants_more_memory_than_a_file_may_have_is_refused() {
    let network = Network::with_limit("fsize=4096:1000000", "");
    let log = network.server.log();
    assert!(log.contains("files may have 1000000 bytes") && log.contains("LimitFSIZE="), "{log}");
    let Err(refused) = network.server.try_attach("large", SMALL) else { panic!("above the limit") };
    let text = refused.to_string();
    assert!(text.contains("larger files (ulimit -f"), "{text}");
    let sizes = Sizes { transmit_pool_bytes: 1 << 16, receive_pool_bytes: 1 << 16, ..SMALL };
    network.server.try_attach("small", sizes).expect("below it, and above what was the soft one");
    // Where not even a line of its log can be written, it serves, and ends as it is told.
    let network = Network::with_limit("fsize=0", "");
    let Err(refused) = network.server.try_attach("small", sizes) else { panic!("above the limit") };
    assert!(refused.to_string().contains("larger files (ulimit -f"), "{refused}");
}
