"""Runs one measured program at a time: in a session of its own, with a time limit, its memory and its neighbours noted."""

import dataclasses
import os
import signal
import subprocess
import tempfile
import threading
import time


@dataclasses.dataclass
class Finished:
    """What is known of a process that ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    rss_mib: float
    """Largest resident set of the process."""
    others: float
    """Cores that other processes (and the hypervisor) kept busy meanwhile, among those that we may use."""

    def why(self):
        """Its last words, for a message."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        return f"exit code {self.code}: {lines[-1][:300] if lines else 'it said nothing'}"


def run(command, env=None, timeout=600.0):
    """Runs a command to its end.

    `env` is added to the environment. Whatever happens here, Ctrl-C too, the command and its children do not outlive the call.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        busy, start = _busy_seconds(), time.perf_counter()
        process = _start(command, env, stdout=stdout, stderr=stderr)
        limit = threading.Timer(timeout, _kill, [process])
        limit.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            limit.cancel()
            _end(process)
        seconds = time.perf_counter() - start
        own = usage.ru_utime + usage.ru_stime
        others = max(0.0, (_busy_seconds() - busy - own) / seconds)
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if process.returncode == -signal.SIGKILL and seconds >= timeout:
        texts[1] += f"\nnot done after {timeout:.0f} s"
    # Linux counts the resident set in KiB, macOS in bytes.
    unit = 1024 if os.uname().sysname == "Linux" else 1024 * 1024
    return Finished(process.returncode, *texts, seconds, usage.ru_maxrss / unit, others)


def seconds_to_line(command, prefix, env=None, timeout=120.0):
    """Seconds from the start of a command to the line of its output that begins with `prefix`; the command is ended there.

    `None` where it ended without such a line.
    """
    start = time.perf_counter()
    process = _start(command, env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    limit = threading.Timer(timeout, _kill, [process])
    limit.start()
    try:
        for line in process.stdout:
            if line.startswith(prefix.encode()):
                return time.perf_counter() - start
    finally:
        limit.cancel()
        # In order where it can be, so that MPI's launcher takes its shared memory with it.
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        _end(process)
        process.stdout.close()
    return None


def _start(command, env, **streams):
    """In a session of its own, so that Ctrl-C reaches the driver alone, which then ends the whole session."""
    environment = {**os.environ, **(env or {})}
    command = [str(word) for word in command]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, **streams)


def _kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _end(process):
    """Ends what is left of the session: PyTorch's compile workers may outlive their parent."""
    _kill(process)
    if process.returncode is None:
        process.wait()


def _busy_seconds():
    """Seconds that the cores we may use were busy since the machine started, time stolen by the hypervisor included."""
    try:
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        with open("/proc/stat") as file:
            rows = [line.split() for line in file if line.split(" ")[0] in cores]
    except (AttributeError, OSError):
        return 0.0
    # user nice system idle iowait irq softirq steal
    ticks = sum(int(row[column]) for row in rows for column in (1, 2, 3, 6, 7, 8))
    return ticks / os.sysconf("SC_CLK_TCK")
