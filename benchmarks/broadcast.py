"""Weights to all nodes of an engine: each reads them from the file server, or one does and `sbcast` copies.

The file server is a stand-in: a process with a bandwidth that all its readers share, because the virtual
nodes of the one-machine cluster share one disk and one cache. `sbcast` is Slurm's own. The file goes over the
loopback interface, and Slurm's daemons of all nodes share this machine's processors, so a row shows from
which bandwidth of the server on a copy would pay if the network were as fast as that; both ways are measured
in turn in the same run.

    each reads     until the last node has the file: N times its size from the server
    broadcast      one read, sbcast to the disks of all nodes, and the read there

    python benchmarks/broadcast.py [--megabytes 256] [--runs 3]
"""

from __future__ import annotations

import argparse
import os
import shutil
import socketserver
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.lab_scene import sbatch, wait_for_job
from tests.cluster.lab import Lab

NODES = (2, 4)
SPEEDS = (None, 400, 100, 25)
"""Megabytes per second that all readers of the server share; None: as fast as it can."""

PIECE = 2**20

READ = """\
import os, socket, sys, time
begin, size = time.time(), 0
if sys.argv[1].isdigit():
    link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    source = link.makefile("rb", buffering=0)
else:
    source = open(sys.argv[1], "rb", buffering=0)
out = open(sys.argv[2], "wb", buffering=0) if len(sys.argv) > 2 else None
place = bytearray(2**20)
while count := source.readinto(place):
    size += count
    if out:
        out.write(memoryview(place)[:count])
with open(f"times.{os.environ.get('SLURM_NODEID', 0)}", "w") as times:
    times.write(f"{begin} {time.time()} {size}")
"""

EACH = """#!/bin/bash
srun --ntasks-per-node=1 python3 read.py {port}
"""

BROADCAST = """#!/bin/bash
python3 read.py {port} first && mv times.0 times.first
date +%s.%N > sent
sbcast --force first copy && date +%s.%N > copied
srun --ntasks-per-node=1 python3 read.py copy
"""


class Server(socketserver.ThreadingTCPServer):
    """Sends the same bytes to every connection, as fast as all of them together may have them."""

    daemon_threads = True
    speed: int | None = None
    """Megabytes per second."""

    def __init__(self, size: int) -> None:
        super().__init__(("127.0.0.1", 0), _Sending)
        self.size = size
        self.piece = os.urandom(PIECE)
        self._free_at, self._lock = 0.0, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def wait(self) -> None:
        """Wait until another piece may be sent."""
        if self.speed is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + PIECE / (self.speed * 1e6)
            until = self._free_at
        time.sleep(max(0.0, until - now))


class _Sending(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = cast(Server, self.server)
        for _ in range(server.size // PIECE):
            server.wait()
            self.request.sendall(server.piece)


def main() -> None:
    """Print a row for each number of nodes and speed of the server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    lab = Lab.current()
    lab.up()
    folder = lab.new_directory("broadcast")
    server = Server(given.megabytes * PIECE)
    try:
        print(f"{given.megabytes} MiB, medians of {given.runs}; load {os.getloadavg()[0]:.1f}")
        print("nodes  server MB/s  each reads   broadcast  ratio  sbcast MB/s")
        for nodes in NODES:
            for server.speed in SPEEDS:
                each, whole, copying = [], [], []
                for _ in range(given.runs):
                    each.append(_each(lab, folder, server, nodes))
                    took, copied = _broadcast(lab, folder, server, nodes)
                    whole.append(took)
                    copying.append(copied)
                one, other = statistics.median(each), statistics.median(whole)
                rate = server.size / 1e6 / statistics.median(copying)
                print(
                    f"{nodes:>5}{server.speed or 'free':>13}{one:>10.2f} s{other:>10.2f} s"
                    f"{other / one:>7.2f}{rate:>13.0f}",
                    flush=True,
                )  # fmt: skip
    finally:
        server.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _run(lab: Lab, folder: Path, server: Server, nodes: int, script: str) -> Path:
    here = folder / f"{time.monotonic_ns()}"
    here.mkdir()
    (here / "read.py").write_text(READ)
    (here / "job.sh").write_text(script.format(port=server.server_address[1]))
    shutil.chown(here, "hpcuser", "hpcuser")
    job = sbatch(
        lab, "--mem=1G", f"--nodes={nodes}", "--ntasks-per-node=1", "-o", here / "log", here / "job.sh",
        cwd=here,
    )  # fmt: skip
    wait_for_job(lab, job)
    return here


def _times(here: Path, server: Server, nodes: int) -> tuple[float, float]:
    """First begin and last end of the nodes that read all of it."""
    found = [path.read_text().split() for path in here.glob("times.[0-9]*")]
    if [int(size) for _, _, size in found] != [server.size] * nodes:
        sys.exit(f"not every node read the file: {(here / 'log').read_text()}")
    return min(float(begin) for begin, _, _ in found), max(float(end) for _, end, _ in found)


def _each(lab: Lab, folder: Path, server: Server, nodes: int) -> float:
    here = _run(lab, folder, server, nodes, EACH)
    begin, end = _times(here, server, nodes)
    shutil.rmtree(here)
    return end - begin


def _broadcast(lab: Lab, folder: Path, server: Server, nodes: int) -> tuple[float, float]:
    """Seconds of all of it, and of sbcast alone."""
    here = _run(lab, folder, server, nodes, BROADCAST)
    if not (here / "copied").exists():
        sys.exit(f"sbcast failed: {(here / 'log').read_text()}")
    read_begin, read_end = _times(here, server, nodes)
    begin, fetched, _ = map(float, (here / "times.first").read_text().split())
    sent, copied = (float((here / name).read_text()) for name in ("sent", "copied"))
    shutil.rmtree(here)
    return (fetched - begin) + (copied - sent) + (read_end - read_begin), copied - sent


if __name__ == "__main__":
    main()
