"""A toolbox of one server of the Model Context Protocol, over its standard streams.

The official SDK speaks the protocol; the process is ours: confined, with limits, and ended with all that it
started. A server that ended is started again by the next call.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.agents.tool_host import PreparedEnvironment, search_path
from hpcbench.agents.tools import (
    ResultKind,
    ToolResult,
    ToolSpec,
    callable_name,
    fitted,
    unknown_tool,
)
from hpcbench.errors import EnvironmentFault, unknown
from hpcbench.files.removal import remove_tree
from hpcbench.installed import install_hint
from hpcbench.plugins import Command
from hpcbench.schema.agent import McpServer

START_SECONDS = 60.0
"""Longest wait until a server lists its tools, beyond the start of an image."""

MOST_STARTS = 5
"""A server that ended so often without a result in between is not started again."""

MOST_LINE = 32 * 2**20
"""Bytes of one message of a server, at most."""

MOST_LOG = 2**20
"""Bytes of a server's standard error that go to the worker's log, at most."""

MOST_NEWS = 10_000
"""News and requests that a server may send between two results; one that sends more is ended."""

MOST_CHECKED = 20_000_000
"""Arguments whose length × that of the schema is less are checked here; others by the server alone."""

_PROBE_SECONDS = 2.0
_MOST_BAD_LINES = 1000
_START = (
    "import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); "
    "from hpcbench.agents.confine import main; main(sys.argv[2:])"
)


class McpTools:
    """Calls tools of one server."""

    def __init__(
        self,
        name: str,
        server: McpServer,
        prepared: PreparedEnvironment,
        *,
        only: Sequence[str] = (),
        idempotent: bool | None = None,
        memory_gb: float,
        folder: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
        log: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
    ) -> None:
        """
        Args:
            name: the server's name in messages.
            server: how it is started.
            prepared: where it runs.
            only: the only tools that the model sees; empty: all.
            idempotent: whether a call may be repeated; None: as the server says of each tool.
            memory_gb: memory of each of its processes, GiB.
            folder: a folder on this node for its files; None: the node's folder of temporary files.
            say: receives news, such as that the server was started again.
            log: receives the lines of the server's standard error.
        """
        self.specs: Sequence[ToolSpec] = ()
        self._name, self._server, self._prepared = name, server, prepared
        self._only, self._idempotent, self._memory = tuple(only), idempotent, memory_gb
        self._folder, self._say, self._log = folder, say, log
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._named: dict[str, str] = {}
        self._starts = 0
        self._closed = False

    async def start(self) -> None:
        """Start the server and list its tools; sets `specs`.

        Raises:
            EnvironmentFault: it cannot be started, does not answer, or lacks a tool of `only`.
        """
        self._running = await self._started()
        self.specs = self._listed(self._running)

    async def call(
        self, name: str, arguments: Mapping[str, Any], images: Sequence[Path], seconds: float
    ) -> ToolResult:
        """See `Toolbox.call`; a server does not see images."""
        spec = next((one for one in self.specs if one.name == name), None)
        if spec is None:
            return unknown_tool(name, (one.name for one in self.specs))
        if spec.length * len(json.dumps(arguments)) < MOST_CHECKED and (
            wrong := spec.misfit(arguments)
        ):
            return ToolResult("arguments", wrong)
        began = time.monotonic()
        try:
            running = await asyncio.wait_for(self._current(), seconds)
        except (EnvironmentFault, asyncio.TimeoutError) as fault:
            why = str(fault) or "it is not ready yet"
            return ToolResult("gone", f"the server '{self._name}' does not run: {why}")
        result = await running.call(
            self._named[name], arguments, seconds - (time.monotonic() - began)
        )
        if result.kind in ("ok", "error"):
            self._starts = 0
        return result

    async def close(self) -> None:
        """End the server and all that it started."""
        self._closed = True
        if self._running is not None:
            await self._running.close()

    async def _current(self) -> _Running:
        async with self._starting:
            if self._running is None or self._running.ended:
                if self._closed:
                    raise EnvironmentFault("the tools are closed")
                if self._starts >= MOST_STARTS:
                    raise EnvironmentFault(f"it ended {self._starts} times in a row")
                if self._running is not None:
                    await self._running.close()
                    self._say(f"the server '{self._name}' ended; it is started again")
                self._running = None
                self._running = await self._started()
                now = {spec.name: spec.sha256 for spec in self._listed(self._running)}
                if now != {spec.name: spec.sha256 for spec in self.specs}:
                    self._starts = MOST_STARTS
                    await self._running.close()
                    raise EnvironmentFault("its tools have changed since it was started first")
            return self._running

    async def _started(self) -> _Running:
        self._starts += 1
        folder = Path(tempfile.mkdtemp(prefix="mcp-", dir=self._folder))
        running: _Running | None = None
        try:
            env = {name: secret.reveal(value) for name, value in self._server.env.items()}
            argv = list(self._server.command)
            command = self._prepared.command(argv, folder, env, network=self._server.network)
            running = _Running(self._name, folder, self._log)
            extra = self._prepared.environment.start_seconds if self._prepared.environment else 0.0
            await running.start(self._confined(command, folder), START_SECONDS + extra)
        except BaseException:
            if running is not None:
                await running.close()
            remove_tree(folder)
            raise
        return running

    def _confined(self, command: Command, folder: Path) -> Command:
        """The command, started so that it is limited and ends with this process."""
        options = ["--parent", str(os.getpid()), "--memory", str(int(self._memory * 2**30))]
        if not self._prepared.contained:
            options += ["--separate", "--scratch", str(folder)]
            options += ["--network"] if self._server.network else []
        start = [sys.executable, "-c", _START, os.pathsep.join(search_path())]
        return Command([*start, *options, "--", *command.argv], command.env)

    def _listed(self, running: _Running) -> tuple[ToolSpec, ...]:
        known = {tool.name: tool for tool in running.tools}
        for name in self._only:
            if name not in known:
                raise EnvironmentFault(unknown("tool", name, known, of=f"server '{self._name}'"))
        origin = f"{running.origin} (server '{self._name}')"
        specs = list[ToolSpec]()
        for name in self._only or known:
            tool = known[name]
            spec = ToolSpec(
                callable_name(name), tool.description or tool.title or "", tool.input_schema,
                self._may_repeat(tool.annotations), origin,
            )  # fmt: skip
            if (other := self._named.setdefault(spec.name, name)) != name:
                raise EnvironmentFault(
                    f"tools '{other}' and '{name}' of server '{self._name}' have one name for a model",
                    remedy="name one of them below `only`",
                )
            specs.append(spec)
        return tuple(specs)

    def _may_repeat(self, annotations: Any) -> bool:
        if self._idempotent is not None:
            return self._idempotent
        return annotations is not None and bool(
            annotations.read_only_hint or annotations.idempotent_hint
        )


@dataclass(slots=True)
class _Running:
    """One process of a server, and the session with it."""

    name: str
    folder: Path
    log: Callable[[str], None]
    tools: tuple[Any, ...] = ()
    origin: str = ""
    ended: bool = False
    _process: asyncio.subprocess.Process | None = None
    _client: Any = None
    _session: asyncio.Task[None] | None = None
    _ready: asyncio.Future[None] | None = None
    _leave: asyncio.Event | None = None
    _too_large: bool = False
    _calls: int = 0
    _news: int = 0
    _last: str = ""

    async def start(self, command: Command, seconds: float) -> None:
        """Start the process, begin the session, list the tools.

        Raises:
            EnvironmentFault: one of these fails.
        """
        self._ready = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._session = asyncio.create_task(self._speak(command))
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), seconds)
        except asyncio.TimeoutError:
            raise self._fault(f"does not list its tools in {seconds:g} s") from None
        except EnvironmentFault:
            raise
        except Exception as error:
            raise self._fault(f"{type(error).__name__}: {_one_line(error)}") from error

    def _fault(self, what: str) -> EnvironmentFault:
        last = f"; it last said: {self._last}" if self._last else ""
        return EnvironmentFault(f"the server '{self.name}' {what}{last}")

    async def _speak(self, command: Command) -> None:
        """The whole session, in one task: the SDK wants that."""
        assert self._ready is not None and self._leave is not None
        try:
            try:
                from mcp import Client
            except ModuleNotFoundError:
                raise EnvironmentFault(
                    "servers of tools need the package mcp", remedy=install_hint("agents")
                ) from None
            async with Client(self._connection(command), cache=None) as client:
                # By a server's own schema: its check may never end, and nothing else would run meanwhile.
                client.session.validate_tool_result = _unchecked  # type: ignore[method-assign]
                info = client.server_info
                self.origin = f"{info.name} {info.version}" if info is not None else self.name
                self.tools = tuple([tool async for tool in _all_tools(client)])
                self._client = client
                self._ready.set_result(None)
                await self._leave.wait()
        except Exception as error:  # noqa: BLE001 - the server's fault, whatever it is
            if not self._ready.done():
                self._ready.set_exception(self._at_start(error))
                self._ready.exception()  # the caller may have left
        finally:
            self.ended = True
            self._client = None

    def _at_start(self, error: Exception) -> EnvironmentFault:
        if isinstance(error, EnvironmentFault):
            return error
        inner: BaseException = error
        while inside := getattr(inner, "exceptions", ()):  # a group of errors
            inner = inside[0]
        if isinstance(inner, EnvironmentFault):
            return inner
        return self._fault(f"cannot be used: {_one_line(inner)}")

    @contextlib.asynccontextmanager
    async def _connection(self, command: Command) -> AsyncIterator[Any]:
        """The streams of the SDK over the process's pipes."""
        import anyio

        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv, env=dict(command.env), cwd=self.folder, start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, limit=MOST_LINE,
            )  # fmt: skip
        except OSError as error:
            raise EnvironmentFault(
                f"{command.argv[0]} cannot be started: {error.strerror}"
            ) from error
        self._process = process
        incoming, read = anyio.create_memory_object_stream[Any](0)
        write, outgoing = anyio.create_memory_object_stream[Any](0)
        sides = self._receive(process, incoming), self._send(process, outgoing, incoming)
        tasks = [asyncio.create_task(one) for one in (*sides, self._pass_log(process))]
        try:
            yield read, write
        finally:
            read.close()
            write.close()
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 1.0)
            self._kill()
            await process.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            incoming.close()
            outgoing.close()

    async def _receive(self, process: asyncio.subprocess.Process, incoming: Any) -> None:
        """Pass on the server's messages, until it ends or sends too much of what is none."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        assert process.stdout is not None
        bad = 0
        try:
            async with incoming:
                while line := await process.stdout.readline():
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        bad += 1
                        if bad > _MOST_BAD_LINES:
                            return
                        continue
                    self._news = self._news + 1 if hasattr(message, "method") else 0
                    if self._news > MOST_NEWS:
                        return
                    await incoming.send(SessionMessage(message))
        except ValueError:  # a line beyond the limit
            self._too_large = True
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        finally:
            self.ended = True
            self._kill()

    async def _send(
        self, process: asyncio.subprocess.Process, outgoing: Any, incoming: Any
    ) -> None:
        """Pass on our messages; once the server takes none, its side is closed."""
        import anyio

        assert process.stdin is not None
        try:
            async with outgoing:
                async for message in outgoing:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.stdin.write(f"{text}\n".encode())
                    await process.stdin.drain()
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            await incoming.aclose()

    async def _pass_log(self, process: asyncio.subprocess.Process) -> None:
        """Pass on what the server writes to its standard error, up to a limit."""
        assert process.stderr is not None
        rest, held = MOST_LOG, b""
        while data := await process.stderr.read(1 << 16):
            if rest <= 0:
                continue
            *lines, held = (held + data[:rest]).split(b"\n")
            rest -= len(data)
            for line in lines:
                self._last = secret.mask(line.decode("utf-8", "replace"))[:2000]
                self.log(f"{self.name}: {self._last}")
            if rest <= 0:
                self.log(f"{self.name}: further lines are left out")
        if held:
            self._last = secret.mask(held.decode("utf-8", "replace"))[:2000]
            self.log(f"{self.name}: {self._last}")

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> ToolResult:
        """The result of one call; no fault of the server raises."""
        client, began = self._client, time.monotonic()
        if client is None:
            return ToolResult("gone", f"the server '{self.name}' ended")
        self._calls += 1
        try:
            said = await asyncio.wait_for(client.call_tool(name, dict(arguments)), seconds)
            kind, text, images = read(said)
        except asyncio.TimeoutError:
            kind, text, images = "time", f"it did not end in {seconds:.3g} s", ()
            asyncio.create_task(self._probe(client))  # noqa: RUF006 - it ends by itself
        except Exception as error:  # noqa: BLE001 - the server's fault, whatever it is
            kind, text, images = *self._failed(error), ()
        finally:
            self._calls -= 1
        return ToolResult(kind, text, images, time.monotonic() - began)

    def _failed(self, error: Exception) -> tuple[ResultKind, str]:
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        if self._too_large and self._calls == 1:
            return "size", f"its result has more than {MOST_LINE >> 20} MiB"
        if self.ended or not isinstance(error, (MCPError, ValidationError, RuntimeError)):
            return "gone", f"the server '{self.name}' ended"
        if isinstance(error, MCPError):
            return "error", _one_line(error)
        return "result", f"its result is of another form than it says: {_one_line(error)}"

    async def _probe(self, client: Any) -> None:
        """End a server that does not answer any more after a call that took too long."""
        try:
            await asyncio.wait_for(client.list_tools(), _PROBE_SECONDS)
        except Exception:  # noqa: BLE001 - whatever it is: it is of no use
            self.ended = True
            self._kill()

    async def close(self) -> None:
        """End the session, the process and its folder."""
        self.ended = True
        if self._leave is not None:
            self._leave.set()
        if self._session is not None:
            if self._ready is not None and not self._ready.done():
                self._kill()
                self._session.cancel()
            await asyncio.gather(self._session, return_exceptions=True)
        self._kill()
        await asyncio.to_thread(remove_tree, self.folder)


async def _unchecked(name: str, result: Any) -> None:
    """Check nothing of a result; `read` does."""


async def _all_tools(client: Any) -> AsyncIterator[Any]:
    """The tools of all pages of a server's list."""
    cursor: str | None = None
    for _ in range(100):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            yield tool
        cursor = page.next_cursor
        if cursor is None:
            return


def read(said: Any) -> tuple[ResultKind, str, tuple[bytes, ...]]:
    """Kind, text and images of a `CallToolResult`."""
    texts, images = list[str](), list[bytes]()
    for part in said.content:
        if part.type == "text":
            texts.append(part.text)
        elif part.type == "image":
            try:
                images.append(base64.b64decode(part.data, validate=True))
            except (binascii.Error, ValueError):
                return "result", "it returned an image that is not base64", ()
        elif part.type == "resource" and hasattr(part.resource, "text"):
            texts.append(f"{part.resource.uri}\n{part.resource.text}")
        elif part.type in ("resource", "resource_link"):
            texts.append(f"({getattr(part, 'uri', None) or part.resource.uri})")
        else:
            texts.append(f"({part.type} is left out)")
    if not texts and not images and said.structured_content is not None:
        texts.append(json.dumps(said.structured_content, ensure_ascii=False))
    return fitted("error" if said.is_error else "ok", "\n".join(texts), images)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]
