"""What is measured, and on what: the program, PyTorch's virtual environment, the cores."""

import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Unavailable(Exception):
    """Something that this machine does not have, or that does not run on it: a row says so, and the others go on."""


class UnisonoFailed(Exception):
    """Unisono failed: the row says so, the others go on, and the exit code is 1."""


def say(text):
    """Tells how things go, on standard error: standard output holds the result alone."""
    print(text, file=sys.stderr, flush=True)


def build_unisono():
    """Builds the release program and returns its path."""
    cargo = shutil.which("cargo") or str(pathlib.Path.home() / ".cargo/bin/cargo")
    say("building unisono …")
    try:
        subprocess.run([cargo, "build", "--release", "-p", "unisono"], cwd=ROOT, check=True, stdout=sys.stderr)
        metadata = subprocess.run(
            [cargo, "metadata", "--format-version", "1", "--no-deps"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnisonoFailed(f"unisono was not built: {error}") from error
    return pathlib.Path(json.loads(metadata.stdout)["target_directory"]) / "release" / "unisono"


def peer_python(venv):
    """The interpreter that has the peers; without `venv` they are installed into `.venv` beside this file, once for each list of versions.

    Raises `Unavailable` where they cannot be installed.
    """
    if venv:
        python = pathlib.Path(venv) / "bin" / "python"
        if not python.exists():
            raise Unavailable(f"{python} does not exist")
        return python
    folder, wanted = HERE / ".venv", HERE / "requirements.txt"
    python, installed = folder / "bin" / "python", folder / "installed"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if installed.exists() and installed.read_text() == digest:
        return python
    say(f"installing {', '.join(wanted.read_text().split())} into {folder.relative_to(ROOT)} (several GB) …")
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, stdout=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", wanted], check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"PyTorch could not be installed: {error}") from error
    installed.write_text(digest)
    return python


def peer_versions(python):
    """Versions of the peers; raises `Unavailable` where they cannot be imported."""
    code = (
        "import json, platform, torch, transformers;"
        "print(json.dumps({'python': platform.python_version(), 'torch': torch.__version__,"
        " 'transformers': transformers.__version__, 'capability': torch.backends.cpu.get_cpu_capability()}))"
    )
    result = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["it said nothing"]
        raise Unavailable(f"PyTorch and transformers cannot be imported: {lines[-1]}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def pin(threads):
    """Keeps this process and all that it starts to `threads` cores, each a physical one as far as there are so many.

    Returns the cores, or `None` where the system cannot pin. Raises `Unavailable` where there are too few.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < threads:
        raise Unavailable(f"{threads} threads need as many cores, and this process may use {len(allowed)}: see --threads")
    siblings = set()
    first, second = [], []
    for core in allowed:
        try:
            group = pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
        except OSError:
            group = str(core)
        (second if group in siblings else first).append(core)
        siblings.add(group)
    cores = (first + second)[:threads]
    os.sched_setaffinity(0, cores)
    return cores


def machine():
    """The machine in words and numbers."""
    fields = {}
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = fields.get("flags", "").split()
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in fields:
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    found = {
        "cpu": name,
        "cores": os.cpu_count(),
        "features": [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags],
        "system": f"{platform.system()} {platform.release()}",
    }
    try:
        found["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
        found["load_before"] = round(os.getloadavg()[0], 2)
    except (ValueError, OSError):
        pass
    return found
