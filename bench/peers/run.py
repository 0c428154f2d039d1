"""Runs unisono beside PyTorch on the same cores, interleaved, and prints a table of medians and ratios. See README.md here."""

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
import signal
import statistics
import sys
import tempfile
import time

import environment
import process
import processes
import rounds
import works
from environment import HERE, Unavailable, UnisonoFailed, say


WORKS = {**works.WORKS, **processes.WORKS}
"""By name, in the order of the table."""
BUSY = 0.2
"""Cores: when other processes take more, PyTorch's threads wait for one another, and its numbers say nothing."""


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", default="", help=f"beginnings of names, by commas: {', '.join(WORKS)}")
    parser.add_argument("--quick", action="store_true", help="one round of fewer steps: to see that it works")
    parser.add_argument("--rounds", type=int, help="interleaved rounds [default: 3, with --quick 1]")
    parser.add_argument("--threads", type=int, default=2, help="threads and cores of each side [default: 2]")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json", help="write all samples there")
    parser.add_argument("--unisono", type=pathlib.Path, metavar="PATH", help="the program [default: cargo build --release]")
    parser.add_argument("--venv", type=pathlib.Path, metavar="DIR", help="an environment with PyTorch and transformers [default: make one]")
    args = parser.parse_args()
    beginnings = [name for name in args.only.split(",") if name]
    args.works = [name for name in WORKS if not beginnings or name.startswith(tuple(beginnings))]
    for beginning in beginnings:
        if not any(name.startswith(beginning) for name in WORKS):
            parser.error(f"no work begins with {beginning}: there are {', '.join(WORKS)}")
    args.rounds = args.rounds or (1 if args.quick else 3)
    if args.threads < 1 or args.rounds < 1:
        parser.error("--threads and --rounds are at least 1")
    return args


def measure(args, scratch):
    """Everything; the result as it is written to `--out`, the rows, and whether unisono failed somewhere."""
    unisono = args.unisono.absolute() if args.unisono else environment.build_unisono()
    version = process.run([unisono, "--version"])
    if version.code != 0:
        raise UnisonoFailed(f"{unisono} --version: {version.why()}")
    python, no_python, versions = None, "", {}
    try:
        python = environment.peer_python(args.venv)
        versions = environment.peer_versions(python)
    except Unavailable as error:
        python, no_python = None, str(error)
        say(no_python)
    began = time.monotonic()
    cores = environment.pin(args.threads)
    cache = HERE / ".venv" / "inductor"
    session = works.Session(unisono, python, no_python, cache, scratch, args.threads, args.rounds, args.quick)
    result = {
        "command": shlex.join(["bench/peers/run", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": environment.machine(),
        "cores": cores,
        "versions": {"unisono": version.stdout.strip(), **versions},
        "works": {},
    }
    rows, failed = [], False
    for name in args.works:
        try:
            samples, found = WORKS[name](session)
        except KeyboardInterrupt:
            say(f"interrupted in {name}: what was measured before it follows")
            result["interrupted"] = name
            break
        except UnisonoFailed as error:
            say(f"  {error}")
            result["works"][name] = {"failed": str(error)}
            rows.append(rounds.Row(name, f"failed: {error}", "–", "–"))
            failed = True
            continue
        rows += found
        failed |= samples.failed
        result["works"][name] = dataclasses.asdict(samples)
    result["rows"] = [dataclasses.asdict(row) for row in rows]
    result["seconds"] = round(time.monotonic() - began, 1)
    return result, rows, failed


def caption(result):
    """What a reader of the table must know: machine, versions, command."""
    machine, versions = result["machine"], result["versions"]
    cores = f"cores {', '.join(map(str, result['cores']))}" if result["cores"] else "cores not pinned"
    others = [
        sample["others"]
        for work in result["works"].values()
        for side, list_of_samples in work.get("rounds", {}).items()
        for sample in list_of_samples
        if "others" in sample and side != "compile"  # Its compiler's processes are not its own.
    ]
    disturbed = ""
    if others:
        disturbed = f"; other processes took {statistics.median(others):.2f} cores (median), at most {max(others):.2f}"
        if statistics.median(others) > BUSY:
            disturbed += ": **too busy a machine, even the ratios mean little**"
    peers = "no peer"
    if "torch" in versions:
        peers = f"PyTorch {versions['torch']}, transformers {versions['transformers']}, Python {versions['python']}"
    features = " ".join(machine["features"]) or "no vector features known"
    return (
        f"Machine: {machine['cpu']}, {machine['cores']} cores ({features}), {machine.get('memory_gib', '?')} GiB, {machine['system']}; "
        f"both sides on {cores}{disturbed}.\n"
        f"{versions['unisono']}; {peers}; freed memory kept (MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184).\n"
        "Medians of interleaved rounds, smallest and largest ratio in brackets; above 1× unisono is ahead. "
        "PyTorch is eager where nothing else is said, and the better of its settings counts.\n"
        f"Made by `{result['command']}` on {result['date']} in {result['seconds']:.0f} s."
    )


def main():
    """See the module. Exit codes: 0, 1 where unisono failed, 2 wrong options, 130 interrupted."""
    args = arguments()
    # SIGTERM is as Ctrl-C: what runs is ended, and what was written is removed on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="unisono-peers-") as scratch:
            result, rows, failed = measure(args, pathlib.Path(scratch))
    except (Unavailable, UnisonoFailed) as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    print(rounds.table([row for row in rows if not row.detail]))
    details = [row for row in rows if row.detail]
    if details:
        print(f"\nProducts one by one (share of the peak in brackets):\n\n{rounds.table(details)}")
    print(f"\n{caption(result)}")
    if args.out:
        args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + os.linesep)
    return 130 if "interrupted" in result else int(failed)


if __name__ == "__main__":
    sys.exit(main())
