"""A toolbox of plugins: it runs calls in children of one process, here or in an image (`tool_process`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hpcbench import environments
from hpcbench.agents import confine, frames
from hpcbench.agents.tools import ToolResult, ToolSpec, unknown_tool
from hpcbench.errors import EnvironmentFault
from hpcbench.files.removal import remove_tree
from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite

START_SECONDS = 60.0
"""Longest wait until the tools are constructed, beyond the start of an image."""

_SLACK = 10.0  # seconds beyond a call's time after which the process itself must be stuck
_MODULE = "hpcbench.agents.tool_process"
_START = f"import sys; sys.path[:] = sys.argv[1:]; from {_MODULE} import main; main()"


class ToolEnvironment(NamedTuple):
    """Where tools run, or a server: an image, with packages beside its Python."""

    image: str | None = None
    """Reference of the image; None: hpcbench's own Python."""
    packages: tuple[str, ...] = ()
    """Requirements, as pip writes them."""


class PreparedEnvironment(NamedTuple):
    """A prepared place on this node."""

    environment: Environment | None
    """None: hpcbench's own Python."""
    container: ContainerSite
    mounts: tuple[str, ...] = ()
    """Folders with images, for containers: `FOLDER:FOLDER:ro`."""

    @property
    def contained(self) -> bool:
        """Whether it is a container."""
        return self.environment is not None and self.environment.kind != "venv"

    def command(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool
    ) -> Command:
        """The command here, with a clean environment; `folder`: where it may write.

        Raises:
            EnvironmentFault: the image, or a folder to mount, is not on this machine.
        """
        own = self.environment or Environment("venv", sys.executable, None)
        if not self.contained:
            clean = {**confine.clean_environment(folder), **env}
            found = environments.wrap(own, argv, (), {}, 0, self.container)
            return Command(found.argv, {**found.env, **clean, "PATH": found.env["PATH"]})
        site = self.container if network else self.container.model_copy(update={"network": "none"})
        wrapped = environments.wrap(own, argv, (str(folder), *self.mounts), env, 0, site)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR")
            or name.startswith(("DOCKER_", "APPTAINER_", "SINGULARITY_"))
        }
        return Command(wrapped.argv, {**kept, **wrapped.env})


class ToolHost:
    """Runs calls of plugins. A process that ended is started again by the next call."""

    def __init__(
        self,
        entries: Sequence[Mapping[str, Any]],
        prepared: PreparedEnvironment,
        *,
        memory_gb: float,
        network: bool = False,
        at_once: int = 0,
        folder: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """
        Args:
            entries: the tools: `name`, `plugin`, `options`, `idempotent` (None: as the plugin says).
            prepared: where they run.
            memory_gb: memory of a call, GiB.
            network: whether they may use the network.
            at_once: calls at the same time; 0: as many as there are processors.
            folder: a folder on this node for its files; None: the node's folder of temporary files.
            say: receives, once, what is not isolated here, and why a process is started again.
        """
        self.specs: Sequence[ToolSpec] = ()
        self._entries, self._prepared = tuple(entries), prepared
        self._memory, self._network, self._folder, self._say = memory_gb, network, folder, say
        self._places = asyncio.Semaphore(at_once or len(os.sched_getaffinity(0)))
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._asked = 0
        self._said = set[str]()
        self._closed = False

    async def start(self) -> None:
        """Start the process and construct the tools; sets `specs`.

        Raises:
            EnvironmentFault: a tool cannot be constructed, or the process cannot be started.
        """
        self._running = await self._started()
        self.specs = self._running.specs

    async def call(
        self, name: str, arguments: Mapping[str, Any], images: Sequence[Path], seconds: float
    ) -> ToolResult:
        """See `Toolbox.call`."""
        if all(spec.name != name for spec in self.specs):
            return unknown_tool(name, (spec.name for spec in self.specs))
        async with self._places:
            try:
                running = await self._current()
            except EnvironmentFault as fault:
                return ToolResult(
                    "gone", f"the process of tools cannot be started: {fault.message}"
                )
            self._asked += 1
            asked = {
                "call": self._asked, "tool": name, "arguments": dict(arguments),
                "images": [str(one.absolute()) for one in images], "seconds": seconds,
            }  # fmt: skip
            return await running.result(asked, seconds + _SLACK)

    async def close(self) -> None:
        """End the process and its children."""
        self._closed = True
        if self._running is not None:
            await self._running.close()

    async def _current(self) -> _Running:
        async with self._starting:
            if self._running is None or self._running.ended:
                if self._closed:
                    raise EnvironmentFault("the tools are closed")
                if self._running is not None:
                    await self._running.close()
                    self._say("the process of tools ended; it is started again")
                self._running = None
                self._running = await self._started()
            return self._running

    async def _started(self) -> _Running:
        folder = Path(tempfile.mkdtemp(prefix="tools-", dir=self._folder))
        try:
            argv = ["python", "-m", _MODULE]
            if not self._prepared.contained and self._prepared.environment is None:
                argv = [sys.executable, "-c", _START, *search_path()]
            command = self._prepared.command(argv, folder, {}, network=self._network)
            job = {
                "tools": list(self._entries), "folder": str(folder), "memory_gb": self._memory,
                "network": self._network, "contained": self._prepared.contained,
                "parent": None if self._prepared.contained else os.getpid(),
            }  # fmt: skip
            running = _Running(folder, await _launched(command, folder))
        except BaseException:
            remove_tree(folder)
            raise
        extra = self._prepared.environment.start_seconds if self._prepared.environment else 0.0
        for note in await running.begin(job, START_SECONDS + extra):
            if note not in self._said:
                self._said.add(note)
                self._say(note)
        return running


async def _launched(command: Command, folder: Path) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command.argv, env=dict(command.env), cwd=folder, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise EnvironmentFault(f"{command.argv[0]} cannot be started: {error.strerror}") from error


class _Running:
    """A process of tools, and the calls that it runs."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.specs: tuple[ToolSpec, ...] = ()
        self.ended = False
        self._folder, self._process = folder, process
        self._waiting: dict[int, asyncio.Future[ToolResult]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def begin(self, job: Mapping[str, Any], seconds: float) -> list[str]:
        """Send the job and wait until the tools are there; returns what is not isolated.

        Raises:
            EnvironmentFault: they are not.
        """
        try:
            self._send(job)
            said, _ = await asyncio.wait_for(self._message(), seconds)
        except asyncio.TimeoutError:
            await self.close()
            raise EnvironmentFault(f"tools are not ready after {seconds:g} s") from None
        except (OSError, EOFError, ValueError, frames.TooLarge) as error:
            await self.close()
            code = self._process.returncode
            raise EnvironmentFault(
                f"the process of tools ended with {code}" if code else "the process of tools ended",
                remedy="the worker's log has its last words",
            ) from error
        except BaseException:
            await self.close()
            raise
        if "fault" in said:
            await self.close()
            raise EnvironmentFault(said["fault"], remedy=said["remedy"])
        self.specs = tuple(ToolSpec(**fields) for fields in said["tools"])
        self._reader = asyncio.create_task(self._read())
        notes: list[str] = said["notes"]
        return notes

    async def result(self, asked: Mapping[str, Any], seconds: float) -> ToolResult:
        """The result of one call; `seconds`: after them the process must be stuck."""
        number = asked["call"]
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(asked)
            await self._drain()
            return await asyncio.wait_for(waiting, seconds)
        except asyncio.TimeoutError:
            await self.close()
            return ToolResult("gone", "the process of tools did not answer, and was killed")
        except OSError:
            return ToolResult("gone", "the process of tools ended")
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                self._send({"cancel": number})
            raise
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """End the process, its children and its folder."""
        self.ended = True
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), 2.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._all_gone()
        await asyncio.to_thread(remove_tree, self._folder)

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        if self._process.stdin.is_closing():
            raise BrokenPipeError
        self._process.stdin.write(frames.pack(message))

    async def _drain(self) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.drain()

    async def _message(self) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        assert self._process.stdout is not None
        text, files = frames.lengths(await self._process.stdout.readexactly(frames.HEAD.size))
        return frames.unpack(
            await self._process.stdout.readexactly(text),
            await self._process.stdout.readexactly(files) if files else b"",
        )

    async def _read(self) -> None:
        """Give each result to its call, until the process ends."""
        try:
            while True:
                said, files = await self._message()
                waiting = self._waiting.get(said["call"])
                if waiting is not None and not waiting.done():
                    found = ToolResult(said["kind"], said["text"], files, said["seconds"])
                    waiting.set_result(found)
        except (OSError, EOFError, ValueError, frames.TooLarge):
            self.ended = True
            self._all_gone()

    def _all_gone(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(ToolResult("gone", "the process of tools ended"))


def search_path() -> list[str]:
    """Folders of this Python's modules, for a process in another folder."""
    return [str(Path(one).absolute()) for one in sys.path]
