"""A wrapper as the worker starts it: a process with a pipe for standard input and a socket."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from hpcbench.inference.client import Client
from hpcbench.wrapper.bodies import same_rules

ROOT = Path(__file__).parents[3]
KEY = "a-key-that-must-appear-nowhere"


class Wrapper:
    """One running wrapper."""

    def __init__(self, plugins: Path, *arguments: str, python: str = sys.executable) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hb"))  # short: sockets hold 107 bytes
        self.socket, self.log = self.folder / "s", self.folder / "engine.log"
        self.errors = self.folder / "wrapper.log"
        (self.folder / "e").mkdir()
        argv = ["--socket", self.socket, "--engine-dir", self.folder / "e", "--log", self.log]
        paths = [str(plugins), str(ROOT), os.environ.get("PYTHONPATH")]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [python, "-m", "hpcbench.wrapper", *map(str, argv), *arguments],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": ":".join(filter(None, paths))},
            )
        assert self.process.stdin is not None
        if "--key-file" not in arguments:
            self.process.stdin.write(f"{KEY}\n".encode())
            self.process.stdin.flush()
        asyncio.run(self._up())

    async def _up(self) -> None:
        async with self.control() as control:
            for _ in range(300):
                try:
                    await control.status()
                    return
                except (aiohttp.ClientError, OSError):
                    assert self.process.poll() is None, self.errors.read_text()
                    await asyncio.sleep(0.05)
        raise AssertionError("the wrapper does not come up")

    def client(self, key: str = KEY) -> Client:
        """The worker's client."""
        return Client(str(self.socket), key, "scripted", rules=same_rules)

    def control(self) -> Control:
        """Requests as anybody would send them."""
        return Control(self.socket)

    def body(self, **options: Any) -> dict[str, Any]:
        """Body of the request that loads the scripted engine."""
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
            async with self.control() as control:
                await control.loaded(self.body(pids=str(pids), **options))

        asyncio.run(load())
        return [int(pid) for pid in pids.read_text().split()]

    def close(self) -> None:
        """End it and everything it left."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Control:
    """A session on a wrapper that knows the key."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def __aenter__(self) -> Control:
        connector = aiohttp.UnixConnector(str(self._socket))
        self.session = aiohttp.ClientSession(
            "http://w", connector=connector, headers={"X-API-Key": KEY}
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.close()

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        async with self.session.request(method, path, json=body) as answer:
            return answer.status, await answer.json()

    async def status(self) -> dict[str, Any]:
        """`GET /status`."""
        return dict((await self.ask("GET", "/status"))[1])

    async def until(self, *states: str) -> dict[str, Any]:
        """The status once the state is one of these."""
        while (status := await self.status())["state"] not in states:
            await asyncio.sleep(0.01)
        return status

    async def loaded(self, body: dict[str, Any]) -> dict[str, Any]:
        """Load; the status once the engine is ready."""
        code, answer = await self.ask("POST", "/v1/model/load", body)
        assert (code, answer) == (202, {"state": "loading"}), answer
        status = await self.until("ready", "failed")
        assert status["state"] == "ready", status
        return status

    async def fails(self, body: dict[str, Any]) -> dict[str, Any]:
        """Load what cannot be loaded; the status once that is clear."""
        code, _ = await self.ask("POST", "/v1/model/load", body)
        assert code == 202
        status = await self.until("ready", "failed")
        assert status["state"] == "failed"
        assert status["reason"] == status["error"]["message"]
        return status

    async def unload(self, **body: Any) -> tuple[int, Any]:
        """`POST /v1/model/unload`."""
        return await self.ask("POST", "/v1/model/unload", body or None)

    async def chat(self, **fields: Any) -> tuple[int, Any]:
        """One answer in one piece."""
        return await self.ask("POST", "/v1/chat/completions", {"messages": [], **fields})

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """`GET /events`."""
        async with self.session.get("/events") as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])


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
    """Make `folder` hold an installed distribution whose entry points are the scripted engines."""
    info = folder / "scripted_engine-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scripted-engine\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[hpcbench.engines]\nscripted = tests.scripted_engine:ScriptedEngine\n"
        "wayward = tests.unit.wrapper.wayward:WaywardEngine\n"
        "broken = no_such_module_anywhere:Engine\n"
    )
    return folder
