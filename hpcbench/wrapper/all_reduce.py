"""One node of an all-reduce: `python -m hpcbench.wrapper.all_reduce RANK NODES ADDRESS PORT INTERFACE`.

It runs in an engine's environment and needs PyTorch there. All ranks sum arrays of two sizes; the first rank
prints a line of JSON: `backend`, `latency_s` of a small array (median) and `bus_bytes_s` of a large one. The
bandwidth of the bus is that of NCCL's own tests: 2 (n - 1) / n × bytes ÷ seconds, which does not depend on
the number of ranks n. Each node takes part with one GPU, or with its CPUs where PyTorch has no CUDA.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import socket
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

SMALL, LARGE = 2, 8 * 2**20
"""Numbers of two bytes in the arrays: 4 bytes, and 16 MiB (16 times that on GPUs)."""

WARM, SMALL_TIMES, LARGE_TIMES = 5, 100, 10
"""All-reduces before the clock starts, and measured ones of each size."""

LONGEST = datetime.timedelta(seconds=120)
"""Longest wait for the other ranks."""

_SIOCGIFADDR = 0x8915


def main(argv: Sequence[str]) -> None:
    """Take part as one rank."""
    import torch
    import torch.distributed as ranks

    rank, nodes, address, port, interface = int(argv[0]), int(argv[1]), argv[2], argv[3], argv[4]
    interface = interface or _interface_towards(address)
    if interface:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, interface)
    on_gpu = torch.cuda.is_available() and ranks.is_nccl_available()
    backend = "nccl" if on_gpu else "gloo"
    ranks.init_process_group(
        backend, init_method=f"tcp://{address}:{port}", rank=rank, world_size=nodes, timeout=LONGEST
    )

    def seconds(numbers: int, times: int) -> list[float]:
        array = torch.ones(numbers, dtype=torch.float16, device="cuda" if on_gpu else "cpu")
        taken = []
        for turn in range(WARM + times):
            array.fill_(1)
            if on_gpu:
                torch.cuda.synchronize()
            begin = time.perf_counter()
            ranks.all_reduce(array)
            if on_gpu:
                torch.cuda.synchronize()
            if turn >= WARM:
                taken.append(time.perf_counter() - begin)
        if float(array[0]) != nodes:
            raise RuntimeError(f"the sum is {float(array[0])}, not {nodes}")
        return taken

    small = seconds(SMALL, SMALL_TIMES)
    size = LARGE * (16 if on_gpu else 1)
    large = statistics.median(seconds(size, LARGE_TIMES))
    ranks.destroy_process_group()
    if rank == 0:
        found: dict[str, Any] = {
            "backend": backend,
            "interface": interface,
            "latency_s": statistics.median(small),
            "bus_bytes_s": 2 * (nodes - 1) / nodes * 2 * size / large,
        }
        sys.stdout.write(json.dumps(found) + "\n")


def _interface_towards(address: str) -> str:
    """The network interface whose address this node has in the first node's network; empty: not known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # UDP: chooses the route, sends nothing
            own = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                asked = struct.pack("256s", name.encode()[:15])
                try:
                    if socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, asked)[20:24]) == own:
                        return name
                except OSError:
                    continue  # it has no address
        except OSError:
            pass
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
