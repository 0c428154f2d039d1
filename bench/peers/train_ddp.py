"""Training steps of `train_torch.py`'s GPT in PyTorch with DistributedDataParallel over Gloo: a process a device, one thread each, on a core of its own.

Prints `step 1` when the first step is done, and at the end a line of JSON: parameters, and seconds of each step as process 0 sees them.
"""

import argparse
import json
import os
import socket
import time

import torch
import torch.distributed
import torch.multiprocessing

from train_torch import Gpt


def train(rank, args, port):
    """The life of a process."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.processes)
    torch.manual_seed(1)
    model = Gpt(args.vocab, args.width, args.heads, args.blocks, args.tokens)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids, targets = (torch.randint(0, args.vocab, (args.batch // args.processes, args.tokens)) for _ in range(2))
    seconds = []
    for _ in range(args.steps):
        start = time.perf_counter()
        loss = parallel(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        seconds.append(time.perf_counter() - start)
        if rank == 0 and len(seconds) == 1:
            print(f"step 1 loss {value:.4f}", flush=True)
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        print(json.dumps({"parameters": parameters, "seconds": seconds, "loss": value}), flush=True)
    torch.distributed.destroy_process_group()


def main():
    """See the module."""
    parser = argparse.ArgumentParser()
    for name in ("vocab", "width", "heads", "blocks", "tokens", "batch", "threads", "steps", "processes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    if args.batch % args.processes:
        parser.error(f"a batch of {args.batch} does not divide over {args.processes} processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(train, (args, port), nprocs=args.processes)


if __name__ == "__main__":
    main()
