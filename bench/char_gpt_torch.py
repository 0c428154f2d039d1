"""One training step of the character GPT (10.8 M parameters, 12 x 256 tokens, f32) in PyTorch eager, for comparison with

    unisono train -c configs/bench-char-10m.yaml --out /tmp/char-10m --fresh

usage: python bench/char_gpt_torch.py [THREADS] [SECONDS]
PyTorch is the fairer opponent when freed memory is kept: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184.
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, BLOCKS, TOKENS, BATCH = 96, 384, 6, 6, 256, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, _ = x.shape
        heads = [t.view(batch, tokens, HEADS, -1).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(WIDTH, 2)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.attn_proj(y)
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, ids, targets):
        x = self.ln_f(self.blocks(self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))))
        return F.cross_entropy((x @ self.wte.weight.T).view(-1, VOCAB), targets.view(-1))


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids, targets = (torch.randint(0, VOCAB, (BATCH, TOKENS)) for _ in range(2))
    times, begin = [], None
    while begin is None or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        model(ids, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
        if begin is None and len(times) == 2:  # the first two warm up
            times, begin = [], time.perf_counter()
    median = statistics.median(times)
    print(f"torch {torch.__version__}, {threads} threads, {len(times)} steps: median {median * 1e3:.0f} ms, best {min(times) * 1e3:.0f} ms, {BATCH * TOKENS / median:.0f} tokens/s")


if __name__ == "__main__":
    main()
