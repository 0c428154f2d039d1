"""The works that are measured: each runs its sides in interleaved rounds and makes rows of the samples."""

import dataclasses
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import tempfile

import process
from environment import HERE, ROOT, Unavailable, UnisonoFailed
from rounds import Row, compare, interleave, ours_text

KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
"""PyTorch is faster when the C library keeps what was freed: otherwise every step touches its pages anew."""


@dataclasses.dataclass
class Session:
    """What every work needs."""

    unisono: pathlib.Path
    python: pathlib.Path
    """The peers' interpreter; `None` where there is none."""
    no_python: str
    """Why."""
    cache: pathlib.Path
    """Where torch.compile keeps what it compiled, so that it does so once."""
    scratch: pathlib.Path
    threads: int
    rounds: int
    quick: bool


@dataclasses.dataclass
class Shape:
    """A model and its batch, for both sides."""

    config: str
    """A file in `configs/`; empty for the default run."""
    model: dict
    """The same for `train_torch.py`."""
    warmup: int
    """Steps of a process that are not timed."""
    timed: int
    """Steps that are."""
    rounds: int = 99
    """Most rounds: fewer where a step is long."""

    def scaled(self, quick):
        """As it is, or with few steps."""
        return dataclasses.replace(self, warmup=min(self.warmup, 1), timed=max(1, self.timed // 2)) if quick else self

    @property
    def steps(self):
        """Steps of a process."""
        return self.warmup + self.timed


CHAR = Shape("bench-char-10m.yaml", dict(vocab=96, width=384, heads=6, blocks=6, tokens=256, batch=12), 2, 5)
GPT2 = dict(vocab=50304, width=768, heads=12, blocks=12)
GPT2_SHORT = Shape("bench-gpt2-4x64.yaml", dict(GPT2, tokens=64, batch=4), 2, 5)
GPT2_LONG = Shape("bench-gpt2-2x512.yaml", dict(GPT2, tokens=512, batch=2), 1, 2, rounds=2)
SMOLLM = Shape("bench-smollm2-8x256.yaml", dict(vocab=49152, width=576, heads=9, groups=3, hidden=1536, blocks=30, tokens=256, batch=8), 1, 2, rounds=3)
DEFAULT = Shape("", dict(vocab=59, width=128, heads=4, blocks=4, tokens=128, batch=16), 0, 1)


def milliseconds(value):
    """A time of a step."""
    return f"{value:.0f} ms"


def mebibytes(value):
    """An amount of memory."""
    return f"{value:.0f} MiB"


# --- unisono -----------------------------------------------------------------------------------------------------------------------------


def unisono(session, *arguments, may_refuse, launcher=()):
    """The program's answer in JSON, and how it ran; `launcher` are words before it.

    Where it refuses its input this is `Unavailable` if it `may_refuse`, because it may not know this yet, and else a failure.
    """
    command = [*launcher, session.unisono, *arguments, "--quiet", "--json"]
    finished = process.run(command)
    if finished.code == 2:
        try:
            reason = "; ".join(json.loads(finished.stdout)["errors"])
        except (ValueError, KeyError):
            reason = finished.why()
        raise (Unavailable if may_refuse else UnisonoFailed)(f"unisono refuses: {reason}")
    if finished.code != 0:
        raise UnisonoFailed(f"unisono {arguments[0]}: {finished.why()}")
    return json.loads(finished.stdout), finished


def train_unisono(session, shape, *options, may_refuse=False):
    """Trains for some steps, with options of `unisono train`; the step's median time, the resident memory of the whole process, the plan."""
    with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
        arguments = ["train", "-c", ROOT / "configs" / shape.config, "--out", f"{folder}/run"]
        arguments += ["--set", f"training_config.max_steps={shape.steps}", "--workers", session.threads, *options]
        answer, finished = unisono(session, *arguments, may_refuse=may_refuse)
        lines = pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"]["total"] for line in lines]
    plan = answer["plan"]
    return {**step_sample(shape, seconds, finished), "parameters": plan["parameters"], "targets": plan["batch"]["targets"]}


def step_sample(shape, seconds, finished):
    """What is kept of a training process."""
    return {
        "step_ms": 1e3 * statistics.median(seconds[shape.warmup :]),
        "rss_mib": finished.rss_mib,
        "seconds": seconds,
        "others": finished.others,
    }


def bench(session, kernel):
    """Rows of `unisono bench KERNEL`."""
    repetitions = 3 if session.quick else 5
    arguments = ["bench", kernel, "--threads", session.threads, "--repetitions", repetitions]
    answer, _ = unisono(session, *arguments, may_refuse=True)
    return answer["kernels"]


# --- PyTorch -----------------------------------------------------------------------------------------------------------------------------


def torch_command(session, script, *arguments):
    """The command of one of the scripts beside this file."""
    if session.python is None:
        raise Unavailable(session.no_python)
    return [session.python, HERE / script, "--threads", session.threads, *arguments]


def torch_env(session, keep=True):
    """The environment of PyTorch: its threads, freed memory kept, nothing fetched."""
    env = {"OMP_NUM_THREADS": str(session.threads), "TORCHINDUCTOR_CACHE_DIR": str(session.cache), "HF_HUB_OFFLINE": "1"}
    return {**env, **(KEEP_FREED_MEMORY if keep else {})}


def torch(session, script, *arguments, keep=True):
    """A script's answer in JSON, and how it ran."""
    finished = process.run(torch_command(session, script, *arguments), torch_env(session, keep))
    if finished.code != 0:
        raise Unavailable(f"{script}: {finished.why()}")
    return json.loads(finished.stdout.splitlines()[-1]), finished


def model_arguments(shape):
    """The model for `train_torch.py`."""
    return [word for key, value in shape.model.items() for word in (f"--{key}", value)]


def train_torch(session, shape, dtype, compiled=False, keep=True):
    """As `train_unisono`."""
    if compiled and not shutil.which("g++"):
        raise Unavailable("torch.compile needs a C++ compiler, and g++ was not found")
    arguments = [*model_arguments(shape), "--steps", shape.steps, "--dtype", dtype]
    arguments += ["--compile"] if compiled else []
    answer, finished = torch(session, "train_torch.py", *arguments, keep=keep)
    targets = shape.model["batch"] * shape.model["tokens"]
    return {**step_sample(shape, answer["seconds"], finished), "parameters": answer["parameters"], "targets": targets}


# --- works -------------------------------------------------------------------------------------------------------------------------------


def training(session, name, what, shape, dtype, compiled, memory):
    """A training step in f32, or in bf16 against autocast; with `memory` a row of the resident memory as well."""
    shape = shape.scaled(session.quick)
    options = [] if dtype == "f32" else ["--set", f"training_config.dtype={dtype}"]
    sides = {
        "unisono": lambda: train_unisono(session, shape, *options, may_refuse=dtype != "f32"),
        "eager": lambda: train_torch(session, shape, dtype),
    }
    if compiled:
        sides["compile"] = lambda: train_torch(session, shape, dtype, compiled=True)
    timed = [side for side in sides if side != "unisono"]
    if memory and not session.quick:
        # Slower, but it may hold less: for the memory PyTorch has this setting too.
        short = dataclasses.replace(shape, timed=1)
        sides["freed memory returned"] = lambda: train_torch(session, short, dtype, keep=False)
    samples = interleave(name, sides, min(session.rounds, shape.rounds), once=("freed memory returned",))
    models = {(sample["parameters"], sample["targets"]) for side in sides for sample in samples.rounds[side]}
    if len(models) > 1:
        raise UnisonoFailed(f"the sides differ in their model or batch (parameters, targets): {sorted(models)}")
    rows = [compare(f"{what}, a step, {dtype}", samples, "step_ms", milliseconds, peers=timed)]
    if memory:
        rows.append(compare(f"{what}, resident memory, {dtype}", samples, "rss_mib", mebibytes))
    return samples, rows


def train_f32(session):
    """The character GPT in f32."""
    return training(session, "train-f32", "character GPT 10.8 M, 12 × 256", CHAR, "f32", compiled=True, memory=True)


def train_bf16(session):
    """The character GPT in bf16."""
    return training(session, "train-bf16", "character GPT 10.8 M, 12 × 256", CHAR, "bf16", compiled=True, memory=False)


def gpt2_short(session, dtype):
    """GPT-2 on short sequences."""
    name = f"gpt2-4x64-{dtype}"
    return training(session, name, "GPT-2 124 M, 4 × 64", GPT2_SHORT, dtype, compiled=False, memory=dtype == "f32")


def gpt2_long(session, dtype):
    """GPT-2 on long sequences."""
    name = f"gpt2-2x512-{dtype}"
    return training(session, name, "GPT-2 124 M, 2 × 512", GPT2_LONG, dtype, compiled=False, memory=dtype == "f32")


def smollm(session, dtype):
    """A step of a Llama of SmolLM2-135M's shape, as in fine-tuning all of it."""
    name = f"smollm-8x256-{dtype}"
    return training(session, name, "SmolLM2-135M's shape, 8 × 256", SMOLLM, dtype, compiled=False, memory=True)


DECODED, PROMPT = 64, 256
MODELS = {"gpt2": ("gpt2 124M", "GPT-2 124 M", 124_439_808), "smollm": ("SmolLM2-135M", "SmolLM2-135M's shape", 134_515_008)}
"""By the name for `infer_torch.py`: the name in `unisono bench`, that of the table, and the parameters as published. (GPT-2: vocabulary 50257
and 1024 positions; a decoded token reads all of them but the positions.)"""


def decoding(session, model, dtype):
    """Decoding and a prompt of a model with random weights, batch 1.

    Unisono's side are the rows `decode MODEL …` (milliseconds of a token) and `prompt MODEL …` (milliseconds of a prompt of 256 tokens) of
    `unisono bench`. A `peak_gbytes_per_s` in them is a read bandwidth, as the one that PyTorch
    reaches: the higher one is the whole of which shares are told.
    """

    name_of_ours, title, parameters = MODELS[model]

    def row(named):
        found = bench(session, named)
        if not found:
            raise Unavailable(f"unisono bench has no row {named}")
        return found[0]

    def ours():
        decode, prompt = row(f"decode {name_of_ours} {dtype}"), row(f"prompt {name_of_ours}, {PROMPT} tokens {dtype}")
        eight = row(f"decode {name_of_ours}, 8 sequences {dtype}")
        # Unisono computes the last token's logits, which are all that generation needs.
        prompt_rate = 1e3 * PROMPT / prompt["milliseconds"]
        return {
            "decode": 1e3 / decode["milliseconds"],
            "eight": 8e3 / eight["milliseconds"],
            "prompt": prompt_rate,
            "prompt_last": prompt_rate,
            "bandwidth": decode.get("peak_gbytes_per_s", 0.0),
        }

    def theirs():
        arguments = ["--model", model, "--new", DECODED, "--prompt", PROMPT, "--dtype", dtype]
        answer, finished = torch(session, "infer_torch.py", *arguments)
        if answer["parameters"] != parameters:
            raise Unavailable(f"transformers' model has {answer['parameters']} parameters, not {parameters}")
        seconds = answer["seconds"]
        best = min(seconds["loop"], seconds["generate"])
        return {
            "decode": DECODED / best,
            "prompt": PROMPT / statistics.median(seconds["prompt"]),
            "prompt_last": PROMPT / statistics.median(seconds["prompt_last"]),
            "bandwidth": answer["read_gbytes_per_s"],
            "seconds": seconds,
            "others": finished.others,
        }

    name = f"decode-{model}-{dtype}"
    sides = {"unisono": ours, "transformers": theirs}
    samples = interleave(name, sides, session.rounds)
    bandwidth = max(samples.median(side, "bandwidth") or 0.0 for side in sides)
    gigabytes = parameters * {"f32": 4, "bf16": 2}[dtype] / 1e9

    def with_share(value):
        share = f", {100 * value * gigabytes / bandwidth:.0f} % of {bandwidth:.1f} GB/s" if bandwidth else ""
        return f"{value:.1f} tokens/s{share}"

    what = f"{title}, batch 1, {dtype}"
    pairs = list(zip(samples.values("unisono", "decode"), samples.values("unisono", "eight")))
    together = f"{statistics.median(eight / one for one, eight in pairs):.2f}× one alone" if pairs else "–"
    tokens = "{:.0f} tokens/s".format
    eight = ours_text(samples, samples.median("unisono", "eight"), "{:.1f} tokens/s".format)
    rows = [
        Row(f"eight sequences together, {title}, {dtype}", eight, "–", together),
        compare(f"decoding with the KV cache, {what}", samples, "decode", with_share, higher_is_better=True),
        compare(f"prompt of {PROMPT} tokens, {what}", samples, "prompt", tokens, higher_is_better=True),
        compare(f"the same, beside a call for the last token's logits, {what}", samples, "prompt_last", tokens, higher_is_better=True),
    ]
    return samples, rows


def mesh(session):
    """The character GPT at batch 16 on two and on eight devices against one, all on the same cores."""
    shape = CHAR.scaled(session.quick)
    batch = ["--set", "training_config.batch_size=16"]
    sides = {
        "unisono": lambda: train_unisono(session, shape, *batch),
        "dp 2": lambda: train_unisono(session, shape, *batch, "--mesh", "dp=2"),
        "dp 8": lambda: train_unisono(session, shape, *batch, "--mesh", "dp=8"),
    }
    samples = interleave("mesh", sides, session.rounds)
    rows = []
    for side in ("dp 2", "dp 8"):
        pairs = list(zip(samples.values("unisono", "step_ms"), samples.values(side, "step_ms")))
        ratio = f"{statistics.median(many / one for one, many in pairs):.2f}× the time" if pairs else "–"
        value = samples.median(side, "step_ms")
        cell = milliseconds(value) if value else f"failed: {samples.missing.get(side, 'one device failed')}"
        one = ours_text(samples, samples.median("unisono", "step_ms"), milliseconds)
        work = f"character GPT 10.8 M, 16 × 256, f32, {side} on {session.threads} cores"
        rows.append(Row(work, cell, f"unisono on one device: {one}", ratio))
    return samples, rows


def start(session):
    """From the start of the process to the end of the first step, default run."""

    def ours():
        with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
            command = [session.unisono, "train", "--out", f"{folder}/run", "--workers", session.threads]
            seconds = process.seconds_to_line(command, "step ")
        if seconds is None:
            raise UnisonoFailed("the default run of unisono ended without a first step")
        return {"first_step_s": seconds}

    def theirs():
        command = torch_command(session, "train_torch.py", *model_arguments(DEFAULT), "--steps", 1)
        seconds = process.seconds_to_line(command, "step ", torch_env(session))
        if seconds is None:
            raise Unavailable("train_torch.py ended without a first step")
        return {"first_step_s": seconds}

    samples = interleave("start", {"unisono": ours, "eager": theirs}, session.rounds + (0 if session.quick else 2))
    return samples, [compare("process start to the first step finished, default run", samples, "first_step_s", "{:.2f} s".format)]


PRODUCTS = {
    "fc forward": (3072, 384, 1536, 0, 0),
    "proj forward": (3072, 1536, 384, 0, 0),
    "fc weight grad": (384, 3072, 1536, 1, 0),
    "fc input grad": (3072, 1536, 384, 0, 1),
    "gpt2 fc": (960, 768, 3072, 0, 0),
    "gpt2 weight grad": (768, 1024, 3072, 1, 0),
    "gpt2 head": (960, 768, 50304, 0, 0),
}
"""The products of `unisono bench matmul`: m, k, n, and whether A and B are read transposed."""


def products(session, dtype):
    """Matrix products at seven training shapes, operands cold."""

    def ours():
        found = {}
        for row in bench(session, "matmul"):
            words = [word for word in row["kernel"].split() if word not in ("matmul", "f32", "bf16")]
            name = " ".join(word for word in words if not re.fullmatch(r"\d+x\d+x\d+", word))
            if row["dtype"] == dtype and name in PRODUCTS:
                found[name] = row["gflops"]
                found[f"{name} peak"] = row["peak_gflops"]
        missing = [name for name in PRODUCTS if name not in found]
        if missing:
            rows = f"row for {', '.join(missing)}" if found else "rows"
            raise Unavailable(f"unisono bench matmul has no {dtype} {rows}")
        return found

    def theirs():
        shapes = [",".join(map(str, shape)) for shape in PRODUCTS.values()]
        arguments = ["--repetitions", 3 if session.quick else 5, "--dtype", dtype, *shapes]
        answer, _ = torch(session, "gemm_torch.py", *arguments)
        return dict(zip(PRODUCTS, map(statistics.median, answer)))

    samples = interleave(f"products-{dtype}", {"unisono": ours, "torch.mm": theirs}, session.rounds)
    details = []
    for name, (m, k, n, _, _) in PRODUCTS.items() if samples.rounds["unisono"] else ():
        peak = samples.median("unisono", f"{name} peak")

        def speed(value):
            return f"{value:.0f} GFLOP/s" + (f" ({100 * value / peak:.0f} %)" if peak else "")

        row = compare(f"{name} {m}×{k}×{n}, {dtype}", samples, name, speed, higher_is_better=True)
        details.append(dataclasses.replace(row, detail=True))
    summaries = {side: spread(samples, side) for side in samples.rounds if samples.rounds[side]}
    peer = summaries.get("torch.mm") or f"not available: {samples.missing.get('torch.mm')}"
    ratio = "–"
    if len(summaries) == 2:
        logs = [math.log(samples.median("unisono", name) / samples.median("torch.mm", name)) for name in PRODUCTS]
        ratio = f"{math.exp(statistics.mean(logs)):.2f}× (geometric mean)"
    ours_cell = summaries.get("unisono") or ours_text(samples, None, str)
    return samples, [Row(f"products at {len(PRODUCTS)} shapes, {dtype}", ours_cell, peer, ratio), *details]


def spread(samples, side):
    """From the slowest to the fastest product, and as shares of the multiply-add peak that unisono measures beside its own."""
    speeds = [samples.median(side, name) for name in PRODUCTS]
    text = f"{min(speeds):.0f}–{max(speeds):.0f} GFLOP/s"
    peaks = [samples.median("unisono", f"{name} peak") for name in PRODUCTS] if samples.rounds["unisono"] else []
    shares = [100 * speed / peak for speed, peak in zip(speeds, peaks)]
    return text + (f", {min(shares):.0f}–{max(shares):.0f} % of the peak" if shares else "")


COLLECTIVES, DEVICES = ("all-reduce", "all-gather"), (2, 4, 8)
COLLECTIVE_SIZES = (4, 64 << 10, 1 << 20, 42_000_000)
"""Bytes of the result on each device, as in `unisono bench collectives`. (In an all-gather each device brings four bytes at least.)"""


def collectives(session):
    """All-reduce and all-gather of 4 B to 42 MB over 2, 4 and 8 devices: in one process here, in a process each with Gloo and Open MPI."""

    def keyed(rows):
        return {f"{row['collective']} {row['devices']} {row['bytes']}": row["microseconds"] for row in rows}

    def ours():
        answer, _ = unisono(session, "bench", "collectives", "--threads", session.threads, may_refuse=True)
        return keyed(answer["collectives"])

    def gloo():
        found = {}
        for devices in DEVICES:
            answer, _ = torch(session, "collectives_gloo.py", "--devices", devices, *COLLECTIVE_SIZES)
            found.update(keyed(answer))
        return found

    def open_mpi():
        compiler, launcher = shutil.which("mpicc"), shutil.which("mpirun")
        if not compiler or not launcher:
            raise Unavailable("mpicc and mpirun are not installed (Debian: openmpi-bin and libopenmpi-dev)")
        program = session.scratch / "collectives_mpi"
        if not program.exists():
            built = process.run([compiler, "-O2", HERE / "collectives_mpi.c", "-o", program])
            if built.code != 0:
                raise Unavailable(f"mpicc: {built.why()}")
        found = {}
        for devices in DEVICES:
            # More processes than cores give theirs up while they wait, as Open MPI does by itself when it knows.
            options = ["--oversubscribe", "--bind-to", "none", "-np", devices]
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            finished = process.run([launcher, *root, *options, program, *map(str, COLLECTIVE_SIZES)])
            if finished.code != 0:
                raise Unavailable(f"mpirun: {finished.why()}")
            found.update(keyed(json.loads(finished.stdout.splitlines()[-1])))
        return found

    samples = interleave("collectives", {"unisono": ours, "Gloo": gloo, "Open MPI": open_mpi}, session.rounds)
    rows = []
    for collective in COLLECTIVES:
        for devices in DEVICES:
            for size in COLLECTIVE_SIZES:
                work = f"{collective} over {devices} devices, {size} B"
                row = compare(work, samples, f"{collective} {devices} {size}", "{:.1f} µs".format)
                rows.append(dataclasses.replace(row, detail=size not in (4, 42_000_000)))
    return samples, rows


WORKS = {
    "train-f32": train_f32,
    "train-bf16": train_bf16,
    "gpt2-4x64-f32": lambda session: gpt2_short(session, "f32"),
    "gpt2-2x512-f32": lambda session: gpt2_long(session, "f32"),
    "gpt2-4x64-bf16": lambda session: gpt2_short(session, "bf16"),
    "gpt2-2x512-bf16": lambda session: gpt2_long(session, "bf16"),
    "smollm-8x256-f32": lambda session: smollm(session, "f32"),
    "smollm-8x256-bf16": lambda session: smollm(session, "bf16"),
    "decode-gpt2-f32": lambda session: decoding(session, "gpt2", "f32"),
    "decode-gpt2-bf16": lambda session: decoding(session, "gpt2", "bf16"),
    "decode-smollm-f32": lambda session: decoding(session, "smollm", "f32"),
    "decode-smollm-bf16": lambda session: decoding(session, "smollm", "bf16"),
    "mesh": mesh,
    "collectives": collectives,
    "start": start,
    "products-f32": lambda session: products(session, "f32"),
    "products-bf16": lambda session: products(session, "bf16"),
}
"""By name, in the order of the table. A work gives its samples and its rows."""
