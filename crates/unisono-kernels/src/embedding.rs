//! Table lookup and its gradient.
