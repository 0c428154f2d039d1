"""Works with several processes: unisono under `mpirun` beside Open MPI itself, beside its own devices in one process, and beside PyTorch's DDP."""

import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import tempfile

import hosts
import process
import works
from environment import HERE, ROOT, Unavailable, UnisonoFailed
from rounds import Row, compare, interleave

SIZES = works.COLLECTIVE_SIZES
RATES = (1, 2, 5)
"""Gbit/s of the link between two hosts."""


def mpirun(count):
    """The words before a program that run `count` processes of it here."""
    launcher = shutil.which("mpirun")
    if not launcher:
        raise Unavailable("mpirun is not installed (Debian: openmpi-bin)")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [launcher, *root, "--oversubscribe", "--bind-to", "none", "-np", str(count)]


def collectives(session):
    """All-reduce of 4 B to 42 MB between two processes, beside `MPI_Allreduce` of the same library."""

    def keyed(rows):
        return {str(row["bytes"]): row["microseconds"] for row in rows if row["collective"] == "all-reduce"}

    def ours():
        answer, _ = works.unisono(session, "bench", "collectives", "--threads", 1, may_refuse=False, launcher=mpirun(2))
        return keyed(answer["collectives"])

    def open_mpi():
        program = session.scratch / "collectives_mpi"
        compiler = shutil.which("mpicc")
        if not compiler:
            raise Unavailable("mpicc is not installed (Debian: libopenmpi-dev)")
        if not program.exists():
            built = process.run([compiler, "-O2", HERE / "collectives_mpi.c", "-o", program])
            if built.code != 0:
                raise Unavailable(f"mpicc: {built.why()}")
        finished = process.run([*mpirun(2), program, *map(str, SIZES)])
        if finished.code != 0:
            raise Unavailable(f"mpirun: {finished.why()}")
        return keyed(json.loads(finished.stdout.splitlines()[-1]))

    samples = interleave("processes-collectives", {"unisono": ours, "Open MPI": open_mpi}, session.rounds)
    return samples, [compare(f"all-reduce over 2 processes, {size} B", samples, str(size), "{:.1f} µs".format) for size in SIZES]


def train_ddp(session, shape, count):
    """As `works.train_torch`, by `count` processes."""
    arguments = [*works.model_arguments(shape), "--steps", shape.steps, "--processes", count]
    answer, finished = works.torch(session, "train_ddp.py", *arguments)
    targets = shape.model["batch"] * shape.model["tokens"]
    return {**works.step_sample(shape, answer["seconds"], finished), "parameters": answer["parameters"], "targets": targets}


def train_processes(session, shape, launcher, *options):
    """As `works.train_unisono`, by processes that share the cores out by themselves; how long messages were under way and exposed, too."""
    with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
        arguments = ["train", "-c", ROOT / "configs" / shape.config, "--out", f"{folder}/run"]
        arguments += ["--set", f"training_config.max_steps={shape.steps}", "--mesh", "dp=2", *options]
        answer, finished = works.unisono(session, *arguments, may_refuse=False, launcher=launcher)
        lines = pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()
    times = [json.loads(line)["seconds"] for line in lines]
    sample = works.step_sample(shape, [time["total"] for time in times], finished)
    total, exposed = answer["result"]["summary"]["between_processes"]
    backward = statistics.median(time["backward"] for time in times[shape.warmup :])
    plan = answer["plan"]
    return {
        **sample,
        "parameters": plan["parameters"],
        "targets": plan["batch"]["targets"],
        "messages_ms": 1e3 * total / shape.steps,
        "exposed_ms": 1e3 * exposed / shape.steps,
        "backward_ms": 1e3 * backward,
    }


def training(session):
    """The character GPT by two processes of a device each."""
    shape = works.CHAR.scaled(session.quick)
    sides = {
        "unisono": lambda: train_processes(session, shape, mpirun(2)),
        "one process": lambda: works.train_unisono(session, shape, "--mesh", "dp=2"),
        "DDP over Gloo": lambda: train_ddp(session, shape, 2),
    }
    samples = interleave("processes-train", sides, session.rounds)
    models = {(sample["parameters"], sample["targets"]) for side in sides for sample in samples.rounds[side]}
    if len(models) > 1:
        raise UnisonoFailed(f"the sides differ in their model or batch (parameters, targets): {sorted(models)}")
    what = "character GPT 10.8 M, 12 × 256, f32, 2 processes × 1 device"
    one = compare(f"{what}; beside: unisono, 1 process × 2 devices", samples, "step_ms", works.milliseconds, peers=["one process"])
    ddp = compare(f"{what}; beside: DDP over Gloo, 2 processes of 1 thread", samples, "step_ms", works.milliseconds, peers=["DDP over Gloo"])
    return samples, [one, ddp]


def start(session):
    """From the start of `mpirun -np 4` to the end of the first step, default run over four processes."""

    def ours():
        with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
            command = [*mpirun(4), session.unisono, "train", "--mesh", "dp=4", "--out", f"{folder}/run"]
            seconds = process.seconds_to_line([*command, "--set", "training_config.max_steps=1"], "step ")
        if seconds is None:
            raise UnisonoFailed("the default run over 4 processes ended without a first step")
        return {"first_step_s": seconds}

    def theirs():
        arguments = [*works.model_arguments(works.DEFAULT), "--steps", 1, "--processes", 4]
        seconds = process.seconds_to_line(works.torch_command(session, "train_ddp.py", *arguments), "step ", works.torch_env(session))
        if seconds is None:
            raise Unavailable("train_ddp.py ended without a first step")
        return {"first_step_s": seconds}

    samples = interleave("processes-start", {"unisono": ours, "DDP over Gloo": theirs}, session.rounds)
    what = "start of 4 processes to the first step finished, default run"
    return samples, [compare(what, samples, "first_step_s", "{:.2f} s".format)]


def overlap(session):
    """GPT-2 124 M, dp 2, between two hosts with a limited link: how much of the messages' time the backward pass hides.

    What could be hidden is the shorter of communication and backward pass. An exchange counts as under way from its begin at this process
    to its end; so does the time in which it waits for the other process.
    """
    shape = dataclasses.replace(works.GPT2_LONG.scaled(session.quick), warmup=0, timed=2)
    with hosts.two_hosts(session.scratch) as pair:
        launcher = pair.launcher(1)

        def at(rate):
            pair.limit(rate)
            sample = train_processes(session, shape, launcher, "--workers", 1)
            hidden = sample["messages_ms"] - sample["exposed_ms"]
            return {**sample, "share": hidden / min(sample["messages_ms"], sample["backward_ms"])}

        sides = {f"{rate} Gbit/s": lambda rate=rate: at(rate) for rate in RATES}
        samples = interleave("processes-overlap", sides, min(session.rounds, shape.rounds))
    rows = []
    for side in sides:
        share = samples.median(side, "share")
        if share is None:
            rows.append(Row(f"overlap, link of {side}", f"not available: {samples.missing.get(side)}", "–", "–"))
            continue
        times = {name: works.milliseconds(samples.median(side, f"{name}_ms")) for name in ("step", "messages", "exposed", "backward")}
        cell = "step {step}, messages {messages}, of them exposed {exposed}, backward {backward}".format(**times)
        rows.append(Row(f"GPT-2 124 M, 2 × 512, dp 2, 2 hosts, link of {side}", cell, "–", f"{share:.2f} of what could be hidden"))
    return samples, rows


WORKS = {
    "processes-collectives": collectives,
    "processes-train": training,
    "processes-start": start,
    "processes-overlap": overlap,
}
"""As `works.WORKS`."""
