//! A Clearway packet, as it came and with its CRC made right: nothing panics, what is valid keeps
//! its promises, and comes out the same when it is emitted and parsed again.
#![no_main]

use clearway_wire::Malformed;
use clearway_wire::clearway::operation::{
    ANSWER_LENGTH, Answer, REQUEST_LENGTH, Request, is_answer,
};
use clearway_wire::clearway::{
    ACK_FRAME_LENGTH, Challenge, Frame, Frames, HEADER_LENGTH, Header, MESSAGE_BYTES_MAX, Packet,
    PacketType, Reset, Syn, SynAck, Versions, emit_ack, emit_fragment, emit_open, emit_path,
    emit_probe, emit_skip, emit_stray, emit_stream, emit_wait, seal,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = walk(bytes);
    if bytes.len() >= HEADER_LENGTH {
        let mut bytes = bytes.to_vec();
        seal(&mut bytes);
        assert_ne!(walk(&bytes), Err(Malformed::Checksum));
    }
});

fn walk(bytes: &[u8]) -> Result<(), Malformed> {
    let packet = Packet::new(bytes)?;
    let header = Header::parse(&packet)?;
    let mut head = [0; HEADER_LENGTH];
    header.emit(&mut head);
    match header.packet_type {
        PacketType::Data => packet.frames().try_for_each(|frame| walk_frame(&frame?)),
        PacketType::Syn => {
            let syn = Syn::parse(&packet)?;
            again(
                &header,
                syn.length(),
                |body| syn.emit(body),
                |packet| {
                    assert_eq!(Syn::parse(packet), Ok(syn));
                },
            )
        }
        PacketType::Challenge => {
            let challenge = Challenge::parse(&packet)?;
            again(
                &header,
                challenge.length(),
                |body| challenge.emit(body),
                |packet| {
                    assert_eq!(Challenge::parse(packet), Ok(challenge));
                },
            )
        }
        PacketType::SynAck => {
            let syn_ack = SynAck::parse(&packet)?;
            again(
                &header,
                syn_ack.length(),
                |body| syn_ack.emit(body),
                |packet| {
                    assert_eq!(SynAck::parse(packet), Ok(syn_ack));
                },
            )
        }
        PacketType::Reset => {
            let reset = Reset::parse(&packet)?;
            again(
                &header,
                reset.length(),
                |body| reset.emit(body),
                |packet| {
                    assert_eq!(Reset::parse(packet), Ok(reset));
                },
            )
        }
        PacketType::Version => {
            let versions = Versions::parse(&packet)?;
            again(
                &header,
                versions.length(),
                |body| versions.emit(body),
                |packet| {
                    assert_eq!(Versions::parse(packet), Ok(versions));
                },
            )
        }
        PacketType::Ping | PacketType::Pong => Ok(()),
    }
}

/// Emits the packet anew and hands it to `check`.
fn again(
    header: &Header,
    body_length: usize,
    emit: impl FnOnce(&mut [u8]) -> usize,
    check: impl FnOnce(&Packet<'_>),
) -> Result<(), Malformed> {
    let mut bytes = vec![0xaa; HEADER_LENGTH + body_length];
    header.emit(&mut bytes);
    assert_eq!(emit(&mut bytes[HEADER_LENGTH..]), body_length);
    seal(&mut bytes);
    let packet = Packet::new(&bytes)?;
    assert_eq!(Header::parse(&packet)?, *header);
    check(&packet);
    Ok(())
}

fn walk_frame(frame: &Frame<'_>) -> Result<(), Malformed> {
    match frame {
        Frame::Ack(ack) => {
            let mut below = None;
            for range in ack.ranges() {
                assert!(range.start < range.end && below.is_none_or(|below| range.end < below));
                below = Some(range.start);
            }
            let mut bytes = [0; ACK_FRAME_LENGTH + 8 * 32];
            let length = emit_ack(&mut bytes, ack.delay_ns, ack.ecn, ack.ranges());
            assert_eq!(length, ack.length());
            let again = Frames::new(&bytes[..length]).next();
            assert_eq!(again, Some(Ok(*frame)));
        }
        Frame::Fragment(fragment) => {
            let length = fragment.bytes.len() as u32;
            assert!(length > 0 && fragment.total <= MESSAGE_BYTES_MAX);
            assert!(fragment.offset + length <= fragment.total);
            let (total, offset) = (fragment.total, fragment.offset);
            let mut bytes = [0; 20];
            emit_fragment(&mut bytes, fragment.sequence, length, total, offset);
        }
        Frame::Operation(operation) => match operation.bytes.first() {
            Some(&first) if is_answer(first) => {
                let answer = Answer::parse(operation.bytes)?;
                assert!(operation.bytes.len() >= ANSWER_LENGTH);
                assert_eq!(Answer::parse(&answer.emit()), Ok(answer));
            }
            _ => {
                let request = Request::parse(operation.bytes)?;
                assert!(operation.bytes.len() >= REQUEST_LENGTH);
                assert_eq!(Request::parse(&request.emit()), Ok(request));
            }
        },
        Frame::Path { port, round } => again_frame(frame, |bytes| emit_path(bytes, *port, *round)),
        Frame::Stray { port } => again_frame(frame, |bytes| emit_stray(bytes, *port)),
        Frame::Probe { round } => again_frame(frame, |bytes| emit_probe(bytes, *round)),
        Frame::Stream(stream) => again_frame(frame, |bytes| emit_stream(bytes, *stream)),
        Frame::Open { limit } => again_frame(frame, |bytes| emit_open(bytes, *limit)),
        Frame::Wait { sequence, number } => {
            again_frame(frame, |bytes| emit_wait(bytes, *sequence, *number));
        }
        Frame::Skip { sequence, length } => {
            again_frame(frame, |bytes| emit_skip(bytes, *sequence, *length));
        }
        _ => {}
    }
    Ok(())
}

/// Emits the frame anew and reads it again.
fn again_frame(frame: &Frame<'_>, emit: impl FnOnce(&mut [u8]) -> usize) {
    let mut bytes = [0; 16];
    let length = emit(&mut bytes);
    assert_eq!(Frames::new(&bytes[..length]).next(), Some(Ok(*frame)));
}
