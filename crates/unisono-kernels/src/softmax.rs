//! Softmax and log-softmax over rows.
