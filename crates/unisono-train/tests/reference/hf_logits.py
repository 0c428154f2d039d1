#!/usr/bin/env python3
"""Logits of small models of each family, computed by transformers, for hub_logits.rs.

    hf_logits.py > hf_logits.json      makes the values (transformers 5.24, torch 2.15, CPU, f32, eager attention)
    hf_logits.py check DIR...          loads directories that unisono wrote, and compares with hf_logits.json

Weights come from a formula, so that no weights need be stored: element i of the tensor `name` is made from
u = top 24 bits of splitmix64(fnv1a64(name) + i) / 2^24 - 1/2, see `values`. The configuration is stored as transformers writes it.
"""

import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

TOKENS = 100
POSITIONS = [65, 66, 70, 75, 79, 84, 88, 93, 97, 99]
IDS = [(7 * i * i + 11 * i + 3) % 97 for i in range(TOKENS)]

COMMON = dict(
    vocab_size=97,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
)
LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
    rope_theta=500000.0,
)
FAMILIES = {
    "llama": LlamaConfig(**COMMON),
    "llama3": LlamaConfig(**COMMON, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=LLAMA3),
    "llama_linear_biases": LlamaConfig(
        **COMMON,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=10000.0),
    ),
    "mistral": MistralConfig(**COMMON, head_dim=16, sliding_window=None),
    "qwen2": Qwen2Config(**COMMON, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "qwen3": Qwen3Config(**COMMON, head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "gpt2": GPT2Config(
        vocab_size=97, n_positions=128, n_embd=64, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None
    ),
}


def values(name, shape):
    """The values of a tensor: gains around 1, biases around 0, matrices by their last dimension."""
    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    count = int(numpy.prod(shape))
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(hashed) + numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    u = (z >> numpy.uint64(40)).astype(numpy.float64) / 2.0**24 - 0.5
    if len(shape) == 1:
        u = 0.6 * u if name.endswith("bias") else 1.0 + 0.6 * u
    else:
        u = u * numpy.sqrt(30.0 / shape[-1])
    return u.astype(numpy.float32).reshape(shape)


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0, POSITIONS].double().numpy()


def model_of(name):
    """The model of a family, its weights from the formula."""
    model = AutoModelForCausalLM.from_config(FAMILIES[name], attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(values(key, list(parameter.shape))))
    return model


def make():
    families = []
    for name in FAMILIES:
        model = model_of(name)
        shapes = {key: list(parameter.shape) for key, parameter in model.named_parameters()}
        out = logits(model)
        with tempfile.TemporaryDirectory() as directory:
            model.save_pretrained(directory)
            with open(os.path.join(directory, "config.json")) as file:
                stored = json.load(file)
        families.append(
            dict(
                name=name,
                config=stored,
                shapes=shapes,
                logits=[[float(f"{x:.6g}") for x in row] for row in out],
            )
        )
        print(name, "logits within", numpy.abs(out).max(), "std", out.std(), file=sys.stderr)
    result = dict(
        made_with=f"transformers {transformers.__version__}, torch {torch.__version__}",
        ids=IDS,
        positions=POSITIONS,
        families=families,
    )
    json.dump(result, sys.stdout, separators=(",", ":"))
    print()


def check(directories):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "hf_logits.json")) as file:
        expected = {family["name"]: numpy.array(family["logits"]) for family in json.load(file)["families"]}
    for directory in directories:
        name = os.path.basename(directory.rstrip("/"))
        model, info = AutoModelForCausalLM.from_pretrained(
            directory, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        worst = numpy.abs(logits(model.eval()) - expected[name]).max()
        print(name, type(model).__name__, "largest difference", worst, {key: list(value) for key, value in info.items() if value})


if __name__ == "__main__":
    check(sys.argv[2:]) if sys.argv[1:2] == ["check"] else make()
