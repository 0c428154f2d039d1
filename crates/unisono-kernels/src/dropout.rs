//! Dropout keyed by the global element.
