//! The configurations that come with the program.

/// The presets: name, one line on what it is, and its YAML.
pub const PRESETS: &[(&str, &str, &str)] = &[
    (
        "char-gpt",
        "a small character GPT on the built-in corpus; what `unisono train` runs without a file",
        include_str!("../../configs/char-gpt.yaml"),
    ),
    (
        "nanogpt",
        "tt-train's nanogpt: 6 blocks, 384 wide, 256 characters",
        include_str!("../../configs/nanogpt.yaml"),
    ),
    (
        "gpt2",
        "GPT-2 with 124 M parameters, on a file of tokens",
        include_str!("../../configs/gpt2.yaml"),
    ),
    (
        "simple-gpt",
        "the smallest GPT worth running: seconds, for a first look",
        include_str!("../../configs/simple-gpt.yaml"),
    ),
    (
        "linear",
        "linear regression on random rows",
        include_str!("../../configs/linear.yaml"),
    ),
];

/// The commented YAML of a preset: `char-gpt`, `nanogpt`, `gpt2`, `simple-gpt` or `linear`.
pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS
        .iter()
        .find(|(preset, ..)| *preset == name)
        .map(|(.., yaml)| *yaml)
}
