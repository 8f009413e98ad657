"""A connection is a descriptor at every hop: none of ours keeps a soft limit that a login shell set low."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.wrapper.running import ROOT, Wrapper

pytestmark = pytest.mark.long

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
RAISED = 65536 if HARD == resource.RLIM_INFINITY else min(HARD, 65536)


@pytest.fixture(autouse=True)
def low() -> Iterator[None]:
    """Children begin with a soft limit that is low, but leaves this process room to start them."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_wrapper_and_engine_may_open_as_many_as_they_are_allowed_to(
    start: Callable[..., Wrapper],
) -> None:
    wrapper = start()
    for pid in (wrapper.process.pid, *wrapper.pids_of()):
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (RAISED, HARD)


@pytest.mark.parametrize(
    "begins",
    [
        "from hpcbench.cli.serve import serve;"
        " serve(argparse.Namespace(port=0, grpc_port=None, tls_certificate=None, tls_key=None,"
        " time_limit=None, stop=False, job=False, as_job=None))",
        "from hpcbench.worker import main; main(['/nowhere', 'group', '0', '0/1'])",
    ],
)
def test_so_may_those_who_ask(begins: str) -> None:
    code = (
        "import argparse, resource\n"
        f"try: {begins}\n"
        "except Exception: print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == str((RAISED, HARD))
