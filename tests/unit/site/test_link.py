"""The network between nodes in words, and a real all-reduce of two processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from hpcbench.site.link import Link
from tests.unit.command import Cli

FAST = Link(("n1", "n2"), "nccl", "ib0", 20e-6, 42e9)
SLOW = Link(("n1", "n2"), "nccl", "eth0", 210e-6, 1.1e9)
CPUS = Link(("n1", "n2"), "gloo", "lo", 215e-6, 0.1e9)
"""Measured within one machine: no network could be faster."""


def test_a_fast_network_needs_no_advice() -> None:
    assert list(FAST.described()) == [
        "all-reduce by nccl between n1 and n2 over ib0: 20 µs for 4 bytes, 42 GB/s for large arrays",
        "split by `tensor` over these nodes, a model of 80 layers waits at least 3.2 ms for the network with "
        "each token; split by `pipeline`, it waits for each part once",
        "the network is as fast as InfiniBand",
    ]


def test_a_slow_network_is_named_with_what_helps() -> None:
    *_, slow = SLOW.described()
    assert slow.startswith("slow: the latency and the bandwidth, compared with InfiniBand")
    assert "`slurm.interface`" in slow and "`pipeline`" in slow


def test_figures_of_cpus_do_not_call_the_network_slow() -> None:
    *_, cpus = CPUS.described()
    assert cpus.startswith("the figures are those of CPUs, as PyTorch had no GPU in this job")
    assert "InfiniBand" not in " ".join(CPUS.described())


@pytest.mark.long
def test_two_processes_measure_the_sum_of_their_arrays() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    argv = [sys.executable, "-m", "hpcbench.wrapper.all_reduce"]
    ranks = [
        subprocess.Popen(
            [*argv, str(rank), "2", "127.0.0.1", port, ""], stdout=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    first, second = (rank.communicate(timeout=200)[0] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0] and second == ""
    found = json.loads(first)
    assert (found["backend"], found["interface"]) == ("gloo", "lo")
    assert found["latency_s"] > 0 and found["bus_bytes_s"] > 0


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--nodes", "2"], "--nodes needs a job (add --run)"),
        (["--run", "--nodes", "1"], "--nodes 1: a network needs two nodes (--nodes 2)"),
        (["--run", "--nodes", "2"], "--nodes needs `executor: slurm` in the site profile"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused(words: list[str], reported: str, cli: Cli) -> None:
    assert reported in cli.err("doctor", *words)
