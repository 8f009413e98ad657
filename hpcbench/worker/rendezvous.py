"""Where the nodes of one engine meet: an address of the first node, and a port that nothing else takes.

The engine binds the port itself, some seconds after it was chosen. It lies outside the range from which the
kernel takes ports for connections and for `port 0`, and workers of one node lock the ports they choose;
against a foreign program only another try with another port helps, which `worker/engine_nodes.py` makes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.files.flock import locked
from hpcbench.subprocesses import printed

LOWEST, HIGHEST = 20_000, 60_000
"""Ports to choose from: below are services, above are ports that many systems give to connections."""

ROW = 16
"""Ports that are chosen together: an engine may derive further ports from the first one."""

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_SIOCGIFADDR = 0x8915
_ASK_SECONDS = 20.0
_MOST_TRIES = 200


def own_address(interface: str | None, towards: str) -> str:
    """This node's IPv4 address.

    Args:
        interface: network interface; None: the one over which `towards` is reached.
        towards: address or host name of another node.

    Raises:
        EnvironmentFault: there is no such interface, it has no address, or the other node has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if interface is not None:
            asked = struct.pack("256s", interface.encode()[:15])
            try:
                return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, asked)[20:24])
            except OSError as error:
                known = ", ".join(sorted(name for _, name in socket.if_nameindex()))
                raise EnvironmentFault(
                    f"network interface '{interface}' has no IPv4 address on this node: {error.strerror}",
                    remedy=f"set `slurm.interface` of the site profile to one of: {known}",
                ) from None
        try:
            probe.connect((towards, 9))  # UDP: chooses the route, sends nothing
            return str(probe.getsockname()[0])
        except OSError as error:
            raise EnvironmentFault(
                f"node {towards} has no address here: {error.strerror or error}",
                remedy="set `slurm.interface` in the site profile",
            ) from None


def address_of(node: str) -> str:
    """Address of a node as Slurm knows it, which may differ from its name; else its name."""
    said = printed(["scontrol", "--oneliner", "show", "node", node], _ASK_SECONDS) or ""
    found = re.search(r"\bNodeAddr=(\S+)", said)
    return found[1] if found else node


@contextlib.contextmanager
def held_port(address: str, scratch: str) -> Iterator[int]:
    """A port of this node that is free, and that no other worker chooses until the block ends.

    Args:
        address: this node's address.
        scratch: folder on the node's own disk.

    Raises:
        EnvironmentFault: no port is free.
    """
    for port in _candidates(*_ephemeral()):
        # Locks of other users are theirs to keep; their ports are found taken below.
        lock = Path(scratch) / f"hpcbench-port-{os.getuid()}-{port}"
        with contextlib.ExitStack() as held:
            try:
                if not held.enter_context(locked(lock)):
                    continue
            except OSError:
                continue
            held.callback(lock.unlink, missing_ok=True)
            if all(_is_free(one) for one in range(port, port + ROW)):
                yield port
                return
    raise EnvironmentFault(
        f"no free TCP port was found on {address}", remedy="see `ss -tln` on that node"
    )


def _candidates(low: int, high: int) -> list[int]:
    """First ports of rows outside the kernel's own range from `low` to `high`, in a random order."""
    rows = range(LOWEST, HIGHEST - ROW, ROW)
    found = [port for port in rows if port + ROW <= low or port > high]
    return random.SystemRandom().sample(found, min(_MOST_TRIES, len(found)))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _ephemeral() -> tuple[int, int]:
    """First and last port that the kernel gives away by itself; without /proc, Linux's default."""
    try:
        low, high = map(int, _EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        return 32768, 60999
    return low, high
