use super::*;
use std::collections::VecDeque;

/// An endpoint whose other side is the test: answers are what the test puts in.
#[derive(Default)]
struct Scripted<const LOSSY: bool> {
    sent: Vec<Vec<u8>>,
    answers: VecDeque<Vec<u8>>,
    current: Vec<u8>,
    room: Option<usize>,
}

impl<const IS_LOSSY: bool> Endpoint for Scripted<IS_LOSSY> {
    const LOSSY: bool = IS_LOSSY;

    fn burst(&self) -> usize {
        64
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        if self.room.is_some_and(|room| self.sent.len() >= room) {
            return Ok(false);
        }
        self.sent.push(message.to_vec());
        Ok(true)
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let Some(answer) = self.answers.pop_front() else { return Ok(None) };
        self.current = answer;
        Ok(Some(&self.current))
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let message = self.current[..length].to_vec();
        self.send(&message)
    }
}

fn load(workload: Workload, size: usize, window: usize) -> Load {
    Load { workload, size, window, connections: 1, seconds: 1.0 }
}

#[test]
fn keeps_its_window_full_and_counts_answers() {
    let mut client = Client::new(load(Workload::Rate, 64, 4));
    let mut wire = Scripted::<false>::default();
    client.begin();
    assert_eq!(client.turn(&mut wire).unwrap(), 0);
    assert_eq!(wire.sent.len(), 4);
    wire.answers.extend(wire.sent.drain(..3));
    assert_eq!(client.turn(&mut wire).unwrap(), 3);
    assert_eq!(wire.sent.len(), 1 + 3);
    assert_eq!(client.answered, 3);
    assert_eq!(client.histogram.len(), 3);
}

#[test]
fn answers_out_of_order_fail_an_ordered_transport() {
    let mut client = Client::new(load(Workload::Rate, 64, 4));
    let mut wire = Scripted::<false>::default();
    client.turn(&mut wire).unwrap();
    wire.answers.push_back(wire.sent[1].clone());
    assert!(client.turn(&mut wire).is_err());
}

#[test]
fn an_answer_of_another_length_fails() {
    let mut client = Client::new(load(Workload::Rtt, 64, 1));
    let mut wire = Scripted::<false>::default();
    client.turn(&mut wire).unwrap();
    wire.answers.push_back(wire.sent[0][..63].to_vec());
    assert!(client.turn(&mut wire).is_err());
}

#[test]
fn lost_datagrams_are_counted_and_have_no_latency() {
    let mut client = Client::new(load(Workload::Rate, 64, 4));
    let mut wire = Scripted::<true>::default();
    client.begin();
    client.turn(&mut wire).unwrap();
    wire.answers.push_back(wire.sent[2].clone());
    wire.answers.push_back(wire.sent[1].clone());
    client.turn(&mut wire).unwrap();
    assert_eq!((client.lost, client.answered), (2, 1));
}

#[test]
fn short_and_empty_messages_work() {
    for size in [0, 1, 7] {
        let mut client = Client::new(load(Workload::Rtt, size, 1));
        let mut wire = Scripted::<false>::default();
        for _ in 0..600 {
            client.turn(&mut wire).unwrap();
            wire.answers.extend(wire.sent.drain(..));
        }
        assert!(client.answered >= 599, "size {size}");
    }
}

#[test]
fn server_answers_later_when_there_is_no_room_now() {
    let mut server = Server::new(load(Workload::Stream, 100, 8).answer_bytes());
    let mut wire = Scripted::<false> { room: Some(1), ..Scripted::default() };
    wire.answers.extend([vec![1; 100], vec![2; 100]]);
    assert_eq!(server.turn(&mut wire).unwrap(), 1);
    wire.room = None;
    assert_eq!(server.turn(&mut wire).unwrap(), 1);
    assert_eq!(wire.sent, [vec![1; 8], vec![2; 8]]);
}

#[test]
fn a_sample_gives_the_payload_of_one_direction() {
    let mut client = Client::new(load(Workload::Stream, 1_000_000, 1));
    let mut wire = Scripted::<false>::default();
    client.begin();
    client.turn(&mut wire).unwrap();
    wire.answers.push_back(wire.sent[0][..8].to_vec());
    client.turn(&mut wire).unwrap();
    let sample = Client::sample_of(std::slice::from_mut(&mut client));
    assert!((sample.gbit_per_s / (sample.rate_per_s * 0.008) - 1.0).abs() < 1e-9);
    assert!(sample.p50_ns <= sample.p999_ns);
}
