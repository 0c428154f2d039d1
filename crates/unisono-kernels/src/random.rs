//! Uniform and normal fills by global element.
