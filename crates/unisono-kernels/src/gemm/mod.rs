//! Matrix products in the canonical order.
