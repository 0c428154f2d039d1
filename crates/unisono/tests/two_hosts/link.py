"""A link between two network namespaces that delays every packet, for kernels without tc's netem. Ends when it is killed.

link.py MILLISECONDS DEVICE NAMESPACE DEVICE NAMESPACE: makes the two devices, gives each to its namespace, says "ready", and carries packets.
"""

import collections
import fcntl
import os
import selectors
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def device(name, namespace):
    """The end of a point-to-point device that packets are read from and written to."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", name, "netns", namespace], check=True)
    return end


def main():
    """Carries packets both ways, each after the delay."""
    seconds = float(sys.argv[1]) / 1000
    first, second = device(*sys.argv[2:4]), device(*sys.argv[4:6])
    peers = {first: second, second: first}
    ready = selectors.DefaultSelector()
    for end in peers:
        ready.register(end, selectors.EVENT_READ)
    # All wait equally long, so they come out in the order in which they went in.
    under_way = collections.deque()
    print("ready", flush=True)
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for key, _ in ready.select(wait):
            under_way.append((time.monotonic() + seconds, peers[key.fd], os.read(key.fd, 65536)))
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, packet = under_way.popleft()
            try:
                os.write(end, packet)
            except OSError:
                pass  # The device is down, or has no room: TCP sends the packet again.


main()
