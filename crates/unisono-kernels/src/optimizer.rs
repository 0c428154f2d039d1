//! AdamW and SGD in one pass.
