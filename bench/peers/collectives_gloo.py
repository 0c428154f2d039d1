"""All-reduce and all-gather of PyTorch over Gloo, between processes on this machine: microseconds of each, the slowest rank's.

An all-reduce works in place; the size of an all-gather is that of its result. Prints a line of JSON, a list of measurements.
"""

import argparse
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed
import torch.multiprocessing


def samples_of(size):
    """How often a size is measured."""
    return 300 if size <= 64 << 10 else 60 if size <= 1 << 20 else 11


def rank(index, world, port, sizes, results):
    """One process."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=index, world_size=world)
    found = []
    for size in sizes:
        part = torch.ones(-(-(size // 4) // world))
        whole, gathered = torch.ones(size // 4), torch.ones(part.numel() * world)
        works = {
            "all-reduce": lambda: torch.distributed.all_reduce(whole),
            "all-gather": lambda: torch.distributed.all_gather(list(gathered.chunk(world)), part),
        }
        for name, work in works.items():
            seconds = []
            for sample in range(-2, samples_of(size)):
                whole.fill_(1)
                torch.distributed.barrier()
                start = time.perf_counter()
                work()
                if sample >= 0:
                    seconds.append(time.perf_counter() - start)
            slowest = torch.tensor(seconds)
            torch.distributed.all_reduce(slowest, op=torch.distributed.ReduceOp.MAX)
            median = statistics.median(slowest.tolist())
            found.append({"collective": name, "devices": world, "bytes": size, "microseconds": 1e6 * median})
    if index == 0:
        results.put(found)
    torch.distributed.destroy_process_group()


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, help="not used: a process has one thread")
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("sizes", nargs="+", type=int)
    args = parser.parse_args()
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(rank, (args.devices, free_port(), args.sizes, results), nprocs=args.devices)
    print(json.dumps(results.get()))


if __name__ == "__main__":
    main()
