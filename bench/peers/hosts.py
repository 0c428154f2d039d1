"""Two hosts on one machine: network namespaces with host names of their own, and a link between them that may be limited. Needs root."""

import contextlib
import os
import shlex
import shutil
import subprocess

from environment import Unavailable

ADDRESSES = ("10.78.0.1", "10.78.0.2")
NETWORK = "10.78.0.0/24"


@contextlib.contextmanager
def two_hosts(scratch):
    """Makes them for as long as the context lasts, and gives `Hosts`."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc") or not shutil.which("mpirun"):
        raise Unavailable("two hosts on one machine need root, iproute2 and Open MPI")
    hosts = Hosts(scratch, [f"bench{os.getpid()}{letter}" for letter in "ab"])
    try:
        hosts.make()
        yield hosts
    finally:
        hosts.remove()


class Hosts:
    """Two namespaces by name, joined by the devices `ua` and `ub`."""

    def __init__(self, scratch, names):
        self.scratch, self.names = scratch, names

    def make(self):
        """The namespaces and the link."""
        first, second = self.names
        for name in self.names:
            _must("ip", "netns", "add", name)
            _must("ip", "-n", name, "link", "set", "lo", "up")
        _must(*f"ip link add ua netns {first} type veth peer name ub netns {second}".split())
        for name, device, address in zip(self.names, ("ua", "ub"), ADDRESSES):
            _must(*f"ip -n {name} addr add {address}/24 dev {device}".split())
            _must(*f"ip -n {name} link set {device} up".split())
        # What Open MPI says as `AGENT HOST COMMAND…` instead of ssh.
        agent = f'shift\nexec ip netns exec {second} unshare -u sh -c "hostname {second}; $*"\n'
        self.scratch.joinpath("agent").write_text(agent)

    def limit(self, gigabits):
        """Limits each direction to so many Gbit/s."""
        for name, device in zip(self.names, ("ua", "ub")):
            words = f"qdisc replace dev {device} root tbf rate {gigabits}gbit burst 1mb latency 50ms"
            _must("tc", "-n", name, *words.split())

    def launcher(self, each):
        """The words before a program that run `each` processes of it on each host."""
        first = self.names[0]
        hosts = ",".join(f"{address}:{each}" for address in ADDRESSES)
        agent = shlex.join(["sh", str(self.scratch / "agent")])
        mpirun = f"mpirun --allow-run-as-root --oversubscribe --bind-to none --host {hosts} -np {2 * each} --mca btl self,tcp"
        mpirun += f" --mca btl_tcp_if_include {NETWORK} --mca oob_tcp_if_include {NETWORK} --mca plm_rsh_agent"
        entered = ["ip", "netns", "exec", first, "unshare", "-u", "sh", "-c", f'hostname {first}; exec "$@"', "sh"]
        return [*entered, *mpirun.split(), agent]

    def remove(self):
        """Everything, with what still runs there."""
        for name in self.names:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            if pids:
                subprocess.run(["kill", "-9", *pids], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _must(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{shlex.join(words)}: {done.stderr.strip() or done.returncode}")
