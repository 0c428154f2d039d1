//! Cross-entropy over a vocabulary that may be sharded.
