"""A wrapper as the worker starts it: a process with a pipe for standard input and a socket."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hpcbench.inference import Client, EngineGone

ROOT = Path(__file__).parents[3]
KEY = "a-key-that-must-appear-nowhere"


class Wrapper:
    """One running wrapper."""

    def __init__(self, plugins: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hb"))  # short: sockets hold 107 bytes
        self.socket, self.log = self.folder / "s", self.folder / "engine.log"
        self.errors = self.folder / "wrapper.log"
        (self.folder / "e").mkdir()
        argv = ["--socket", self.socket, "--engine-dir", self.folder / "e", "--log", self.log]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hpcbench.wrapper", *map(str, argv)],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": f"{plugins}:{ROOT}"},
            )
        assert self.process.stdin is not None
        self.process.stdin.write(f"{KEY}\n".encode())
        self.process.stdin.flush()
        asyncio.run(self._up())

    async def _up(self) -> None:
        async with self.client() as client:
            for _ in range(300):
                try:
                    await client.status()
                    return
                except EngineGone:
                    assert self.process.poll() is None, self.errors.read_text()
                    await asyncio.sleep(0.05)
        raise AssertionError("the wrapper does not come up")

    def client(self, key: str = KEY) -> Client:
        """A client that knows the key."""
        return Client(str(self.socket), key, "scripted")

    def body(self, **options: Any) -> dict[str, Any]:
        """What loads the scripted engine."""
        return {
            "engine": "scripted",
            "model_path": "/weights",
            "model_name": "scripted",
            "options": options,
        }

    def pids_of(self, **options: Any) -> list[int]:
        """Load an engine; returns the pids of it and its children."""
        pids = self.folder / "pids"

        async def load() -> None:
            async with self.client() as client:
                await client.load(self.body(pids=str(pids), **options), 30)

        asyncio.run(load())
        return [int(pid) for pid in pids.read_text().split()]

    def close(self) -> None:
        """End it and everything it left."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def gone(pids: list[int], seconds: float = 15) -> bool:
    """Whether all these processes end within `seconds`; a zombie has ended."""
    until = time.monotonic() + seconds
    while any(_alive(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def install_scripted(folder: Path) -> Path:
    """Make `folder` hold an installed distribution whose entry point is the scripted engine."""
    info = folder / "scripted_engine-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scripted-engine\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[hpcbench.engines]\nscripted = tests.mock_openai:ScriptedEngine\n"
        "broken = no_such_module_anywhere:Engine\n"
    )
    return folder
