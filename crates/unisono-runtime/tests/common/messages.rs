//! What every transport promises, as one body that each process of a world runs.

use unisono_runtime::transport::{MAX_TAG, Request, Transport, TransportError};

/// All of it, one after the other.
pub fn all(to: &mut dyn Transport) {
    assert!(to.rank() < to.size() && !to.name().is_empty());
    for len in [0, 1, 4, 5000, 4 << 20] {
        ring(to, len);
    }
    tags_out_of_order(to);
    one_tag_in_order(to);
    sends_end_while_receives_wait(to);
    another_length(to);
    cancelled(to);
    refused(to);
    ring(to, 3);
    to.finish().expect("all of them take leave");
    let mut byte = [0];
    let error = begin_receive(to, 0, 0, &mut byte).expect_err("it has taken leave");
    assert!(error.to_string().contains("taken leave"), "{error}");
}

fn begin_send(to: &mut dyn Transport, peer: usize, tag: u32, bytes: &[u8]) -> Result<Request, TransportError> {
    // SAFETY: each caller keeps the bytes until the request is over.
    unsafe { to.send(peer, tag, bytes.as_ptr(), bytes.len()) }
}

fn begin_receive(from: &mut dyn Transport, peer: usize, tag: u32, bytes: &mut [u8]) -> Result<Request, TransportError> {
    // SAFETY: each caller keeps the bytes, and reads them only when the request is over.
    unsafe { from.receive(peer, tag, bytes.as_mut_ptr(), bytes.len()) }
}

/// Tests a request until it is over.
pub fn wait(on: &mut dyn Transport, request: Request) -> Result<(), TransportError> {
    while !on.test(request)? {
        std::thread::yield_now();
    }
    Ok(())
}

/// The bytes that `from` sends for `salt`.
fn bytes(from: usize, salt: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ from.wrapping_mul(101) ^ salt) as u8)
        .collect()
}

/// The next and the previous process.
fn neighbours(of: &dyn Transport) -> (usize, usize) {
    let (rank, size) = (of.rank(), of.size());
    ((rank + 1) % size, (rank + size - 1) % size)
}

/// Each sends to the next, the largest tag; first with the receive begun, then with the message on its way.
pub fn ring(to: &mut dyn Transport, len: usize) {
    let (next, previous) = neighbours(to);
    for receive_first in [true, false] {
        let out = bytes(to.rank(), len, len);
        let mut come = vec![0xee; len];
        let (sent, received) = if receive_first {
            let received = begin_receive(to, previous, MAX_TAG, &mut come).expect("it receives");
            (begin_send(to, next, MAX_TAG, &out).expect("it sends"), received)
        } else {
            let sent = begin_send(to, next, MAX_TAG, &out).expect("it sends");
            (
                sent,
                begin_receive(to, previous, MAX_TAG, &mut come).expect("it receives"),
            )
        };
        wait(to, received).expect("it comes");
        wait(to, sent).expect("it goes");
        assert!(come == bytes(previous, len, len), "{len} bytes");
    }
}

/// The first sends a message to the last that is too long for two processes to hold twice.
#[allow(dead_code)] // It is for processes only.
pub fn one_way(to: &mut dyn Transport, len: usize) {
    let last = to.size() - 1;
    let byte = |at: usize| (at ^ (at >> 9) ^ (at >> 19) ^ (at >> 29)) as u8;
    if to.rank() == 0 {
        let out: Vec<u8> = (0..len).map(byte).collect();
        let sent = begin_send(to, last, 1, &out).expect("it sends");
        wait(to, sent).expect("it goes");
    } else if to.rank() == last {
        let mut come = vec![0; len];
        let received = begin_receive(to, 0, 1, &mut come).expect("it receives");
        wait(to, received).expect("it comes");
        assert!(
            come.iter().enumerate().all(|(at, come)| *come == byte(at)),
            "{len} bytes"
        );
    }
}

/// The median of half the time of a message to the other and one back, in seconds.
#[allow(dead_code)] // It is for processes only.
pub fn there_and_back(to: &mut dyn Transport, len: usize, times: usize) -> f64 {
    let peer = 1 - to.rank();
    let (out, mut come) = (vec![1; len], vec![0; len]);
    let one = |to: &mut dyn Transport, come: &mut [u8]| {
        for sends in [to.rank() == 0, to.rank() == 1] {
            let request = if sends {
                begin_send(to, peer, 0, &out)
            } else {
                begin_receive(to, peer, 0, come)
            };
            spin(to, request.expect("it begins"));
        }
    };
    median(times, || one(to, &mut come)) / 2.0
}

/// The median of the time in which two processes send each other a message, in seconds.
#[allow(dead_code)] // It is for processes only.
pub fn both_ways(to: &mut dyn Transport, len: usize, times: usize) -> f64 {
    let peer = 1 - to.rank();
    let (out, mut come) = (vec![1; len], vec![0; len]);
    median(times, || {
        let received = begin_receive(to, peer, 0, &mut come).expect("it receives");
        let sent = begin_send(to, peer, 0, &out).expect("it sends");
        spin(to, received);
        spin(to, sent);
    })
}

fn spin(on: &mut dyn Transport, request: Request) {
    while !on.test(request).expect("it is over in time") {}
}

fn median(times: usize, mut run: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..times + times / 10 + 1)
        .map(|_| {
            let start = std::time::Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .skip(times / 10 + 1)
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Waits for a message that does not come.
#[allow(dead_code)] // It is for processes only.
pub fn wait_for_ever(on: &mut dyn Transport, peer: usize) {
    let mut byte = [0];
    let request = begin_receive(on, peer, 0, &mut byte).expect("it receives");
    panic!("a message came: {:?}", wait(on, request));
}

/// Receives begun and tested in other orders than the sends: a tag finds its message.
fn tags_out_of_order(to: &mut dyn Transport) {
    let (next, previous) = neighbours(to);
    let tags: Vec<usize> = (0..97).collect();
    let out: Vec<Vec<u8>> = tags.iter().map(|&tag| bytes(to.rank(), tag, tag * 40)).collect();
    let mut come: Vec<Vec<u8>> = tags.iter().map(|&tag| vec![0; tag * 40]).collect();
    let mut requests = Vec::new();
    for &tag in tags.iter().rev() {
        requests.push(begin_receive(to, previous, tag as u32, &mut come[tag]).expect("it receives"));
    }
    for tag in tags.iter().map(|tag| tag * 36 % 97) {
        requests.push(begin_send(to, next, tag as u32, &out[tag]).expect("it sends"));
    }
    for index in (0..requests.len()).map(|index| index * 35 % requests.len()) {
        wait(to, requests[index]).expect("it is over");
    }
    for tag in tags {
        assert!(come[tag] == bytes(previous, tag, tag * 40), "tag {tag}");
    }
}

/// Messages of one tag go to its receives in order, small ones not before large ones, whichever request is tested first.
fn one_tag_in_order(to: &mut dyn Transport) {
    let (next, previous) = neighbours(to);
    let len = |index: usize| if index.is_multiple_of(3) { 200_000 } else { 7 };
    let out: Vec<Vec<u8>> = (0..30).map(|index| bytes(to.rank(), index, len(index))).collect();
    let mut come: Vec<Vec<u8>> = (0..30).map(|index| vec![0; len(index)]).collect();
    let mut requests = Vec::new();
    for index in 0..30 {
        requests.push(begin_send(to, next, 5, &out[index]).expect("it sends"));
        requests.push(begin_receive(to, previous, 5, &mut come[index]).expect("it receives"));
    }
    for request in requests.into_iter().rev() {
        wait(to, request).expect("it is over");
    }
    for (index, come) in come.into_iter().enumerate() {
        assert!(come == bytes(previous, index, len(index)), "message {index}");
    }
}

/// Neighbours that both wait for their sends to end take what the other sends.
fn sends_end_while_receives_wait(to: &mut dyn Transport) {
    let (next, previous) = neighbours(to);
    let out: Vec<Vec<u8>> = (0..3).map(|tag| bytes(to.rank(), tag, 1 << 20)).collect();
    let mut come = vec![vec![0; 1 << 20]; 3];
    let (mut received, mut sent) = (Vec::new(), Vec::new());
    for tag in 0..3 {
        received.push(begin_receive(to, previous, tag as u32, &mut come[tag]).expect("it receives"));
        sent.push(begin_send(to, next, tag as u32, &out[tag]).expect("it sends"));
    }
    for request in sent.into_iter().chain(received) {
        wait(to, request).expect("it is over");
    }
    assert!((0..3).all(|tag| come[tag] == bytes(previous, tag, 1 << 20)));
}

/// A message shorter or longer than expected is an error, and the next one comes all the same.
fn another_length(to: &mut dyn Transport) {
    for (given, expected) in [
        (3, 8),
        (0, 1),
        (8, 3),
        (1, 0),
        (100_000, 200_000),
        (200_000, 100_000),
        (3_000_000, 8),
    ] {
        another_length_of(to, given, expected);
        ring(to, given);
    }
}

/// Each sends to the next `given` bytes, which expects another number.
fn another_length_of(to: &mut dyn Transport, given: usize, expected: usize) {
    let (next, previous) = neighbours(to);
    let out = bytes(to.rank(), 1, given);
    let mut come = vec![0; expected];
    let received = begin_receive(to, previous, 6, &mut come).expect("it receives");
    let sent = begin_send(to, next, 6, &out).expect("it sends");
    let error = wait(to, received).expect_err(&format!("{given} bytes where {expected} were expected"));
    wait(to, sent).expect("it goes");
    let told = TransportError::Length {
        peer: previous,
        given,
        expected,
    };
    assert_eq!(error, told);
    // What came was not for this receive, so none of it is there.
    assert!(come.iter().all(|byte| *byte == 0));
}

/// A receive that is given up takes no message from the next one.
fn cancelled(to: &mut dyn Transport) {
    let (next, previous) = neighbours(to);
    let mut never = [0xee; 16];
    let request = begin_receive(to, previous, 8, &mut never).expect("it receives");
    assert_eq!(to.test(request), Ok(false));
    to.cancel(request).expect("nothing has come");
    // So that nobody sends before the neighbour has given up: word of it goes all the way round.
    for _ in 0..to.size() {
        ring(to, 1);
    }
    let out = bytes(to.rank(), 8, 16);
    let mut come = [0; 16];
    let received = begin_receive(to, previous, 8, &mut come).expect("it receives");
    let sent = begin_send(to, next, 8, &out).expect("it sends");
    wait(to, received).expect("it comes");
    wait(to, sent).expect("it goes");
    assert!(come[..] == bytes(previous, 8, 16));
    assert_eq!(never, [0xee; 16]);
}

/// Ranks and tags that there are not.
fn refused(to: &mut dyn Transport) {
    let nobody = to.size();
    let error = begin_send(to, nobody, 0, &[1]).expect_err("there is no such rank");
    assert!(
        error.to_string().contains(&format!("there are {nobody} processes")),
        "{error}"
    );
    let error = begin_receive(to, 0, MAX_TAG + 1, &mut [1]).expect_err("there is no such tag");
    assert!(error.to_string().contains("the largest tag is 32767"), "{error}");
}
