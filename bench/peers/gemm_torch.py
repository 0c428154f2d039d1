"""Matrix products in PyTorch, operands cold as in `unisono bench`: GFLOP/s of each repetition.

Shapes are words `m,k,n,a,b`, where `a` and `b` say whether A and B are read transposed (0 or 1). Prints a line of JSON: a list a shape.
"""

import argparse
import json
import time

import torch

FLUSH = 24 << 20
"""Numbers that are written between repetitions: more than the caches hold, and as many as `unisono bench` writes."""


def operand(rows, cols, transposed, dtype):
    """A random matrix, its memory laid out by columns where it is read transposed."""
    return torch.randn(cols, rows).to(dtype).t() if transposed else torch.randn(rows, cols).to(dtype)


def main():
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--dtype", choices=("f32", "bf16"), required=True)
    parser.add_argument("shapes", nargs="+")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    flush = torch.empty(FLUSH)
    results = []
    for shape in args.shapes:
        m, k, n, a_transposed, b_transposed = map(int, shape.split(","))
        a, b = operand(m, k, a_transposed, dtype), operand(k, n, b_transposed, dtype)
        c = torch.empty(m, n, dtype=dtype)
        torch.mm(a, b, out=c)
        speeds = []
        for _ in range(args.repetitions):
            flush.fill_(0.0)
            start = time.perf_counter()
            torch.mm(a, b, out=c)
            speeds.append(2 * m * k * n / (time.perf_counter() - start) / 1e9)
        results.append(speeds)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
