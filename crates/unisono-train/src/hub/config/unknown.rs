//! What the models lack that are not built.

/// What is said of an architecture that nothing is known of.
pub(super) const GENERIC: &str = "this model family is not built";

/// Parts of names, and what a model of such a name has that is not built here.
const FAMILIES: [(&str, &str); 33] = [
    ("moe", "mixtures of experts are not built"),
    ("mixtral", "mixtures of experts are not built"),
    (
        "deepseek",
        "multi-head latent attention and mixtures of experts are not built",
    ),
    ("gptoss", "mixtures of experts and attention sinks are not built"),
    ("gpt_oss", "mixtures of experts and attention sinks are not built"),
    ("llama4", "mixtures of experts and chunked attention are not built"),
    (
        "gemma",
        "scaled embeddings, gains of 1 + weight and gated GELU are not built",
    ),
    (
        "phi3",
        "fused projections of queries, keys and values are not built for this family",
    ),
    ("phi", "parallel blocks and partial rotary positions are not built"),
    ("gptneox", "parallel blocks and partial rotary positions are not built"),
    ("gpt_neox", "parallel blocks and partial rotary positions are not built"),
    ("gptj", "parallel blocks and interleaved rotary positions are not built"),
    ("gpt_neo", "alternating local attention is not built"),
    ("gptneo", "alternating local attention is not built"),
    ("gptbigcode", "its form of multi-query attention is not built"),
    ("falcon", "parallel blocks are not built"),
    ("bloom", "ALiBi positions are not built"),
    ("mpt", "ALiBi positions are not built"),
    (
        "opt",
        "learned positions with an offset and its order of norms are not built",
    ),
    ("stablelm", "partial rotary positions are not built"),
    ("cohere", "parallel blocks and scaled logits are not built"),
    ("olmo", "its order of norms is not built"),
    ("granite", "its multipliers are not built"),
    ("smollm3", "layers without rotary positions are not built"),
    ("mamba", "state-space layers are not built"),
    ("rwkv", "recurrent layers are not built"),
    ("jamba", "state-space layers are not built"),
    ("qwen3next", "gated delta nets are not built"),
    ("t5", "encoders are not built"),
    ("bart", "encoders are not built"),
    ("bert", "encoders are not built"),
    ("whisper", "encoders of sound are not built"),
    (
        "conditionalgeneration",
        "encoders, of text or of pictures, are not built",
    ),
];

/// What is missing for a class or `model_type` of this name, as a clause.
pub(super) fn missing(name: &str) -> &'static str {
    let lower = name.to_ascii_lowercase();
    if lower.ends_with("model")
        && ["llama", "mistral", "qwen2", "qwen3", "gpt2"]
            .iter()
            .any(|of| lower == format!("{of}model"))
    {
        return "it is a model without a head, which predicts nothing";
    }
    if lower.contains("classification") || lower.contains("questionanswering") {
        return "heads other than that of a language model are not built";
    }
    let found = FAMILIES.iter().find(|(part, _)| lower.contains(part));
    found.map_or(GENERIC, |(_, what)| what)
}
