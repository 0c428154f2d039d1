//! Checkpoints: complete or absent, the same for every mesh.
