"""GPT-2 124 M, or a Llama of SmolLM2-135M's shape, with random weights in transformers, batch 1: tokens a second of greedy decoding with the KV cache and of a prompt.

Decoding is timed in `generate` and in a plain loop over the model. Beside it the read bandwidth, the best of three operations that read
a large tensor once. Prints a line of JSON: seconds of all decoded tokens in both ways, and of each
prompt.
"""

import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

START = 16
"""Tokens before the decoded ones."""
READ_BYTES = 512 << 20


def timed(call):
    """Seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def loop(model, ids, tokens):
    """Seconds of `tokens` greedy steps in a plain loop, after the prompt `ids`."""

    def decode(past, last):
        for _ in range(tokens):
            out = model(last, past_key_values=past, use_cache=True)
            past, last = out.past_key_values, out.logits[:, -1:].argmax(-1)

    out = model(ids, use_cache=True)
    return timed(lambda: decode(out.past_key_values, out.logits[:, -1:].argmax(-1)))[0]


def generate(model, ids, tokens):
    """Seconds of `tokens` tokens in `generate`, less those of the first one, with which the prompt is counted."""

    def call(count):
        return model.generate(
            ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, use_cache=True, pad_token_id=0
        )

    first = timed(lambda: call(1))[0]
    seconds, out = timed(lambda: call(tokens + 1))
    assert out.shape[1] == ids.shape[1] + tokens + 1
    return seconds - first


def read_bandwidth():
    """GB/s of reading memory once with all threads."""
    # Random, since a host may keep equal pages once.
    x = torch.rand(READ_BYTES // 4 // 4096, 4096)
    y = torch.ones(4096)
    calls = (lambda: x.sum(), lambda: x.amax(), lambda: torch.mv(x, y))
    return max(READ_BYTES / timed(call)[0] / 1e9 for call in calls for _ in range(3))


def main():
    """See the module."""
    parser = argparse.ArgumentParser()
    for name in ("threads", "new", "prompt"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--model", choices=("gpt2", "smollm"), default="gpt2")
    parser.add_argument("--dtype", choices=("f32", "bf16"), required=True)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    smollm = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9)
    smollm.update(num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True)
    config = {"gpt2": GPT2Config(), "smollm": LlamaConfig(**smollm)}[args.model]
    model = AutoModelForCausalLM.from_config(config).eval().to(dtype)
    ids = torch.randint(0, config.vocab_size, (1, START))
    prompt = torch.randint(0, config.vocab_size, (1, args.prompt))
    with torch.inference_mode():
        loop(model, ids, 4)
        # A plain call gives the logits of all tokens; `generate` asks for the last one's only.
        calls = {"prompt": lambda: model(prompt, use_cache=True), "prompt_last": lambda: model(prompt, use_cache=True, logits_to_keep=1)}
        for call in calls.values():
            call()
        times = {
            "loop": loop(model, ids, args.new),
            "generate": generate(model, ids, args.new),
        }
        times |= {name: [timed(call)[0] for _ in range(3)] for name, call in calls.items()}
        bandwidth = read_bandwidth()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"parameters": parameters, "seconds": times, "read_gbytes_per_s": bandwidth}))


if __name__ == "__main__":
    main()
