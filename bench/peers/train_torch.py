"""Training steps of a GPT-2-style model in PyTorch on the CPU: what `unisono train` does with `model_type: gpt2`, tied weights and no dropout;
with `--groups` of a Llama of `transformers`, as with `model_type: llama`.

Prints `step 1` when the first step is done, and at the end a line of JSON: parameters, and seconds of each step.
"""

import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention and MLP, each after its norm and added to the stream."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """`x` and the result: batch × tokens × width."""
        batch, tokens, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with learned positions and a head that shares the embedding's weights."""

    def __init__(self, vocab, width, heads, blocks, tokens):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.ln_f = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids, targets):
        """Mean loss of `targets`; both batch × tokens."""
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Llama(nn.Module):
    """`transformers`' Llama with tied weights."""

    def __init__(self, args):
        super().__init__()
        # Only here: GPT-2 needs no transformers.
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=args.vocab,
            hidden_size=args.width,
            intermediate_size=args.hidden,
            num_hidden_layers=args.blocks,
            num_attention_heads=args.heads,
            num_key_value_heads=args.groups,
            max_position_embeddings=args.tokens,
            tie_word_embeddings=True,
            use_cache=False,
        )
        self.model = LlamaForCausalLM(config)

    def forward(self, ids, targets):
        """Mean loss of `targets`; both batch × tokens."""
        logits = self.model(ids).logits
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def main():
    """See the module."""
    parser = argparse.ArgumentParser()
    for name in ("vocab", "width", "heads", "blocks", "tokens", "batch", "threads", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--groups", type=int, help="key/value heads of a Llama")
    parser.add_argument("--hidden", type=int, help="width of its perceptron")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="bf16 is autocast")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = Llama(args) if args.groups else Gpt(args.vocab, args.width, args.heads, args.blocks, args.tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if args.compile else model
    ids, targets = (torch.randint(0, args.vocab, (args.batch, args.tokens)) for _ in range(2))
    seconds = []
    for _ in range(args.steps):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = forward(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        seconds.append(time.perf_counter() - start)
        if len(seconds) == 1:
            print(f"step 1 loss {value:.4f}", flush=True)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"parameters": parameters, "seconds": seconds, "loss": value}))


if __name__ == "__main__":
    main()
