"""Large buffers stay with the process: the kernel is not asked for the same memory again."""

from __future__ import annotations

import subprocess
import sys

TWICE = """
import resource
from hpcbench.wrapper.large_buffers import keep_buffers

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        page = b"x" * 2**20
        joined = b"".join([page, page])
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
fresh = faults()
keep_buffers()
faults()
print(fresh, faults())
"""


def test_memory_of_a_page_is_asked_for_once() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=True)
    fresh, kept = map(int, done.stdout.split())
    assert kept < 50 <= fresh, done.stdout  # 50 times two buffers
