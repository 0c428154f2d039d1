//! Strided copies: permute, slice, concat, broadcast.
