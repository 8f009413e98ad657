"""The wrapper beside engines, in every Python that this machine has; the others are held by type checks."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.inference.client import Client
from hpcbench.schema.site import ContainerSite
from tests.campaign import first
from tests.sockets import listens

pytestmark = pytest.mark.timeout(900)


def interpreters() -> list[str]:
    """One of each minor version from 3.10 on."""
    found: dict[int, str] = {}
    for minor in range(10, 16):
        places = [shutil.which(f"python3.{minor}")]
        places += map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        for place in filter(None, places):
            code = f"import sys, venv; sys.exit(sys.version_info[1] != {minor})"
            if (
                subprocess.run([place, "-c", code], capture_output=True, check=False).returncode
                == 0
            ):
                found[minor] = place
                break
    return list(found.values())


FOUND = interpreters()


def test_there_is_a_python_to_try() -> None:
    assert FOUND


@pytest.mark.parametrize("python", first(1, FOUND))
def test_the_wrapper_serves_in_a_bare_environment_of(python: str, tmp_path: Path) -> None:
    bare, site = tmp_path / "bare", ContainerSite()
    subprocess.run([python, "-m", "venv", "--without-pip", str(bare)], check=True)
    found = environments.prepare(f"venv:{bare}", tmp_path / "cache", site)
    folder = tmp_path / "run"
    folder.mkdir()
    words = ["python", "-m", "hpcbench.wrapper", "--socket", str(folder / "s")]
    words += ["--engine-dir", str(folder), "--log", str(folder / "log")]
    command = environments.wrap(found, words, [str(folder)], {}, 0, site)
    with subprocess.Popen(
        command.argv,
        env={**os.environ, **command.env},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"key\n")
        process.stdin.flush()
        try:
            deadline = time.monotonic() + 60
            while not listens(folder / "s") and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            assert asyncio.run(status(folder / "s"))["state"] == "empty"
        finally:
            process.stdin.close()
            process.wait(20)


async def status(socket: Path) -> dict[str, object]:
    async with Client(str(socket), "key", "none") as client:
        return dict(await client.status())
