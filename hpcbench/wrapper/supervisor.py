"""The one engine a wrapper holds: which state it is in, and the only ways from one to the next.

empty ── load ──► loading ──► ready ── unload ──► stopping ──► empty
                     │          │
                     └──► failed ◄── (it ended by itself); load tries again
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict, Field

from hpcbench import plugins
from hpcbench.errors import HpcbenchError
from hpcbench.wrapper.family import Guard
from hpcbench.wrapper.process import Child, EngineFailed, Log, hidden_values

SOCKET_BYTES = 107
"""Longest path of a Unix socket on Linux."""

State = Literal["empty", "loading", "ready", "failed", "stopping"]


class Load(BaseModel):
    """What `POST /v1/model/load` takes."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    engine: str
    """Name in the entry-point group `hpcbench.engines`."""
    model_path: str
    """Folder of the weights, as seen from here."""
    model_name: str
    """Name under which requests ask for it."""
    dtype: str = "auto"
    """auto, float32, float16 or bfloat16."""
    context_length: int | None = None
    """Most tokens of prompt and answer together."""
    gpus: int = 0
    """GPUs it may use; 0 is CPU."""
    chat_template: str | None = None
    """Text of the chat template to use instead of the model's own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Handed to the engine's plugin."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of the engine; wins over the plugin's."""
    timeout: float = Field(default=1800, gt=0)
    """Longest wait for the engine to be ready, seconds."""


class Busy(Exception):
    """There is a model already."""


class Supervisor:
    """Holds at most one engine."""

    def __init__(self, engine_dir: Path, log: Path, guard: Guard | None = None) -> None:
        self._engine_dir, self._log_path, self._guard = engine_dir, log, guard
        self.state: State = "empty"
        self.session: aiohttp.ClientSession | None = None
        """Connections to the engine while it is ready."""
        self.in_flight = self.served = 0
        """Requests now with the engine; requests it has answered."""
        self._asked: Load | None = None
        self._child: Child | None = None
        self._error: str | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._started = 0.0
        self._quiet = asyncio.Event()  # no engine, and none on its way
        self._quiet.set()

    async def load(self, ask: Load) -> dict[str, Any]:
        """Start an engine and wait until it answers.

        Raises:
            Busy: a model is loaded, loading, or on its way out.
            EngineFailed: it did not become ready; nothing of it is left.
        """
        if self.state not in ("empty", "failed"):
            raise Busy(f"a model is here already ({self.state})")
        self.state, self._asked, self._error = "loading", ask, None
        await self._quiet.wait()  # of an engine that ended by itself something may still be ending
        folder = self._private_folder()
        self._quiet.clear()
        self._started = time.monotonic()
        session = _session(folder / "s")
        try:
            plugin = _plugin(ask.engine)
            command = _command(plugin, ask, folder / "s")
            self._stop_if_unwanted()
            log = Log(self._log_path, hidden_values(ask.env, os.environ))
            child = self._child = await Child.start(command, ask.env, log, self._guard)
            self._stop_if_unwanted()
            await child.ready(session, ask.timeout)
            self._stop_if_unwanted()
        except EngineFailed as error:
            raise await self._give_up(error, session, folder) from None
        except BaseException as error:
            text = f"loading broke off: {type(error).__name__}: {error}"
            failure = await self._give_up(EngineFailed("bad_engine", text), session, folder)
            if isinstance(error, Exception):
                raise failure from error
            raise
        self.state, self.session = "ready", session
        self._watcher = asyncio.ensure_future(self._watch(child, session, folder))
        return {
            "state": "ready",
            "engine": ask.engine,
            "pid": child.pid,
            "seconds": round(time.monotonic() - self._started, 3),
            "versions": _versions(getattr(plugin, "packages", ())),
        }

    async def unload(self) -> None:
        """End the engine and all it started; does nothing without one.

        Raises:
            EngineFailed: something of it survived SIGKILL.
        """
        self.state = "stopping"
        if self._child is not None:
            await self._child.stop()
        await self._quiet.wait()  # whoever started it, `load` or `_watch`, clears up behind it
        self.state = "empty"

    async def ended_soon(self, seconds: float) -> bool:
        """Whether the engine is gone now, or will be within `seconds`."""
        if self._child is not None:
            await asyncio.wait({self._child.ended}, timeout=seconds)
        return self._child is None or self._child.ended.done()

    def status(self) -> dict[str, Any]:
        """The answer of `GET /status`."""
        ask, child = self._asked, self._child
        return {
            "state": self.state,
            "engine": ask.engine if ask else None,
            "model_name": ask.model_name if ask else None,
            "pid": child.pid if child else None,
            "uptime": round(time.monotonic() - self._started, 3) if child else None,
            "in_flight": self.in_flight,
            "served": self.served,
            "last_error": self._error,
        }

    def _private_folder(self) -> Path:
        """Mode 0700: the engine itself asks nobody for a key."""
        try:
            return Path(tempfile.mkdtemp(prefix="e", dir=self._engine_dir))
        except OSError as error:
            self.state, self._error = "failed", f"the engine's folder cannot be made: {error}"
            raise EngineFailed("bad_engine", self._error) from None

    async def _give_up(
        self, error: EngineFailed, session: aiohttp.ClientSession, folder: Path
    ) -> EngineFailed:
        if self.state != "loading":
            error = EngineFailed("stopped", "unloaded while loading", log=error.log)
        await self._clear(session, folder)
        self.state, self._error = "failed", error.message
        return error

    def _stop_if_unwanted(self) -> None:
        if self.state != "loading":
            raise EngineFailed("stopped", "unloaded while loading")

    async def _watch(self, child: Child, session: aiohttp.ClientSession, folder: Path) -> None:
        await asyncio.wait({child.ended})
        if self.state != "stopping":
            self.state = "failed"
            self._error = child.failure("while serving").message
        await self._clear(session, folder)

    async def _clear(self, session: aiohttp.ClientSession, folder: Path) -> None:
        self.session = None
        await session.close()
        try:
            if self._child is not None:
                await self._child.stop()  # it may have left children behind
        except EngineFailed as error:
            self._error = error.message
        finally:
            self._child = None
            shutil.rmtree(folder, ignore_errors=True)
            self._quiet.set()


def _session(socket: Path) -> aiohttp.ClientSession:
    """Connections to an engine: as many as needed, none idle longer than any server keeps them."""
    return aiohttp.ClientSession(
        # uvicorn, in vLLM too, closes idle connections after 5 s; a request sent just then is lost
        connector=aiohttp.UnixConnector(path=str(socket), limit=0, keepalive_timeout=3),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        read_bufsize=2**20,
        skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept", "Content-Type"),
    )


def _plugin(name: str) -> Any:
    try:
        return plugins.load("engines", name)
    except HpcbenchError as error:
        raise EngineFailed("bad_engine", str(error)) from None


def _command(plugin: Any, ask: Load, socket: Path) -> plugins.Command:
    if len(os.fsencode(socket)) > SOCKET_BYTES:
        raise EngineFailed("bad_engine", f"path of the engine's socket is too long: {socket}")
    spec = plugins.EngineSpec(
        model_path=ask.model_path,
        model_name=ask.model_name,
        socket=str(socket),
        dtype=ask.dtype,
        context_length=ask.context_length,
        gpus=ask.gpus,
        chat_template=ask.chat_template,
        options=ask.options,
    )
    try:
        command: plugins.Command = plugin().launch_command(spec)
    except HpcbenchError as error:
        raise EngineFailed("bad_engine", str(error)) from None
    return command


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("hpcbench", *packages):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
