//! Prefetched batches are the same batches, and whatever goes wrong in the thread reaches the consumer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unisono_data::{Batch, DataError, Prefetcher, Tokens, TrainBatches, Windows};

fn batches() -> TrainBatches {
    let tokens = Tokens::random(3, 500, 50).expect("valid numbers");
    TrainBatches::new(Windows::new(tokens, 16).expect("long enough"), 1, true).expect("samples")
}

#[test]
fn they_are_the_batches_of_the_same_steps() {
    let (source, reference) = (batches(), batches());
    let mut prefetcher = Prefetcher::new(move |step, batch| source.fill(100 + step * 8, 8, batch)).expect("a thread");
    let mut expected = Batch::default();
    for step in 0..100 {
        let batch = prefetcher.next_batch().expect("a batch");
        reference.fill(100 + step * 8, 8, &mut expected).expect("a batch");
        assert_eq!(batch, expected, "step {step}");
        if step % 3 > 0 {
            prefetcher.recycle(batch);
        }
    }
}

#[test]
fn it_runs_ahead_by_a_bounded_number_and_ends_when_dropped() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let mut prefetcher = Prefetcher::new(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    })
    .expect("a thread");
    prefetcher.next_batch().expect("a batch");
    // One taken, two waiting, one that waits to be put there; on a busy machine the thread may take its time.
    let start = Instant::now();
    while calls.load(Ordering::SeqCst) < 4 && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    drop(prefetcher);
    assert_eq!(
        Arc::strong_count(&calls),
        1,
        "the thread has ended and dropped its function"
    );
}

#[test]
fn an_error_comes_after_the_good_batches_and_stays() {
    let error = || DataError::Prefetch {
        batch: 2,
        reason: "the data ended".to_string(),
    };
    let mut prefetcher =
        Prefetcher::new(move |step, _| if step == 2 { Err(error()) } else { Ok(()) }).expect("a thread");
    assert!(prefetcher.next_batch().is_ok() && prefetcher.next_batch().is_ok());
    assert_eq!(prefetcher.next_batch(), Err(error()));
    assert_eq!(prefetcher.next_batch(), Err(error()));
}

#[test]
fn a_panic_becomes_an_error_with_its_message() {
    let mut prefetcher = Prefetcher::new(|step, _| {
        if step == 1 {
            panic!("step {step} is bad")
        } else {
            Ok(())
        }
    })
    .expect("a thread");
    assert!(prefetcher.next_batch().is_ok());
    assert_eq!(
        prefetcher.next_batch().expect_err("must fail").to_string(),
        "preparing batch 1 failed: it panicked: step 1 is bad"
    );
}
