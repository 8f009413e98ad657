"""A wrapper's single engine: its state, and the only transitions between states.

empty ── load ──► loading ──► ready ── unload ──► draining ──► empty
                     │          │
                     └──► failed ◄── (it ended, stalled, or is a zombie); load retries, unload clears

One coroutine, `_live`, is the life of one engine from its start until all of it is gone. All reports about
it (`status`, `news`) are masked.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import platform
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict, Field

import hpcbench
from hpcbench import plugins
from hpcbench.errors import HpcbenchError, UserError
from hpcbench.wrapper import engine_process
from hpcbench.wrapper.bodies import Bodies
from hpcbench.wrapper.direct import JUST_NOW_SECONDS, NEXT_REPORT_SECONDS
from hpcbench.wrapper.engine_output import Log
from hpcbench.wrapper.engine_process import Child, EngineFailed, healthy
from hpcbench.wrapper.masking import Mask, hidden_values
from hpcbench.wrapper.memory import Peaks, Sampler
from hpcbench.wrapper.meter import Meter
from hpcbench.wrapper.process_tree import Guard

SOCKET_BYTES = 107
"""Longest path of a Unix socket on Linux."""

_UUID_BYTES = 37
"""Length of a UUID as text, with the slash before it."""

State = Literal["empty", "loading", "ready", "draining", "failed"]

_QUEUE_PAUSE = 0.005  # seconds between tries to get into an engine's full queue of connections

_STOPPED = "a process of the engine was stopped (SIGSTOP)"

_LOOKS_FOR_MEMORY = 10
"""Looks at a further rank for each look at its shared memory, which reads the maps of all its processes."""

_NEWS_KEPT = 64
"""Queue length of a listener; if it does not read, the oldest news is dropped."""


class Load(BaseModel):
    """Body of `POST /v1/model/load`."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    engine: str
    """Name in the entry-point group `hpcbench.engines`."""
    model_path: str
    """Folder of the weights, as seen by the wrapper."""
    model_name: str
    """Name of the model in requests."""
    dtype: str = "auto"
    """auto, float32, float16 or bfloat16."""
    context_length: int | None = None
    """Most tokens of prompt and answer together."""
    gpus: int = 0
    """Number of its GPUs; 0: CPU only."""
    chat_template: str | None = None
    """Text of the chat template to use instead of the model's own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the engine's plugin."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of the engine; wins over the plugin's."""
    media_root: str | None = None
    """Folder whose images requests may name as `file://`; None: no file may be named."""
    cpus: int = 0
    """CPUs of the job; 0: unknown."""
    images: int = 0
    """Most images of one request; 0: unknown."""
    reuse: bool = False
    """Whether images repeat, so that caches of them pay off."""
    gpu_memory_share: float | None = Field(default=None, gt=0, le=1)
    """Share of a GPU's memory that it may use; None: all."""
    parallel: plugins.Split | None = None
    """How the model is split over its GPUs; None: as the engine likes."""
    rank: plugins.Rank | None = None
    """Its place among the nodes of the engine; None: the engine has one node."""
    timeout: float = Field(default=1800, gt=0)
    """Longest wait until the engine is ready, seconds."""
    stall_timeout: float = Field(default=300, gt=0)
    """Longest silence of the engine with requests in it, seconds; then the wrapper ends it."""


class Busy(Exception):
    """A model is already there."""


@dataclass(frozen=True, slots=True)
class Route:
    """The access to an engine that takes requests."""

    session: aiohttp.ClientSession
    """Connections to the engine."""
    bodies: Bodies
    """Changes to requests."""
    peaks: Peaks
    """Memory peaks of its processes."""
    mask: Mask
    """Masks secrets in its errors."""
    socket: Path
    """The engine's own socket, for clients on this node."""
    images: Path | None = None
    """Folder from which it reads images that come without base64; None: it takes data URIs only."""


class Supervisor:
    """Holds at most one engine."""

    look_seconds: ClassVar[float] = 1.0
    """Interval between checks of the engine."""
    stopped_looks: ClassVar[int] = 5
    """Checks in a row that find a rank stopped, after which the wrapper ends it."""
    probe_seconds: ClassVar[float] = 30.0
    """Interval of `/health` requests to an idle engine; a busy engine's answers show that it lives."""

    def __init__(
        self,
        engine_dir: Path,
        log: Path,
        guard: Guard | None = None,
        mask: Mask | None = None,
    ) -> None:
        self._engine_dir, self._log_path, self._guard = engine_dir, log, guard
        self._mask = mask or Mask()
        self.meter = Meter(lambda: self.state)
        self.state: State = "empty"
        self.route: Route | None = None
        """Set while requests are accepted."""
        self.session: aiohttp.ClientSession | None = None
        """Connections to the engine, from its start to its end."""
        self.takes_images = False
        """Whether images may come without base64: engines then get a folder to read them from."""
        self._ask: Load | None = None
        self._log: Log | None = None
        self._child: Child | None = None
        self._error: EngineFailed | None = None
        self._remains: tuple[Child, EngineFailed] | None = None
        """The last engine with surviving processes, and its failure."""
        self._started = 0.0
        self._load_seconds: float | None = None
        self._versions: dict[str, str] = {}
        self._life: asyncio.Task[None] | None = None
        self._clearing = False
        """Whether the current life only has its cleanup left, which must not be interrupted."""
        self._listeners: set[asyncio.Queue[dict[str, Any] | None]] = set()

    # --- requests --------------------------------------------------------------------------------

    def load(self, ask: Load) -> None:
        """Start an engine; `status` and `news` report the result.

        Raises:
            Busy: a model is loading, loaded, or ending.
            EngineFailed: processes of the previous engine survived SIGKILL and still live.
        """
        if self.state not in ("empty", "failed"):
            raise Busy(f"the wrapper already has a model ({self.state}): unload it first")
        if (left := self._not_gone()) is not None:
            raise left
        self._ask, self._error, self._log = ask, None, None
        self._started, self._load_seconds, self._versions = time.monotonic(), None, {}
        self._mask.hide(hidden_values(ask.env, os.environ))
        self._enter("loading")
        self._life = asyncio.ensure_future(self._live(ask, self._life))

    async def unload(self, drain_seconds: float = 0) -> None:
        """Accept no more requests, let those in flight finish, end the engine and all its processes.

        Raises:
            EngineFailed: a process of it survived SIGKILL.
        """
        life = self._life
        if life is not None and not life.done() and self.state in ("loading", "ready"):
            self.route = None
            self._enter("draining")
            begin = time.monotonic()
            while (
                self._has_requests(begin)
                and time.monotonic() < begin + drain_seconds
                and not life.done()
            ):
                await asyncio.sleep(0.02)
            if not self._clearing:
                life.cancel()
        if life is not None:
            await asyncio.wait({life})
        if (left := self._not_gone()) is not None:
            raise left
        if life is self._life and self.state != "empty":  # no load came meanwhile
            self._error = None
            self._enter("empty")

    def _has_requests(self, drained_since: float) -> bool:
        """Whether the engine has requests, or may have some that clients of it have not reported yet."""
        clients = self.meter.direct
        wait = time.monotonic() < drained_since + NEXT_REPORT_SECONDS
        unheard = wait and not clients.all_heard(drained_since - JUST_NOW_SECONDS)
        return bool(self.meter.at_engine) or unheard

    async def fail(self, kind: str, message: str, cause: str) -> None:
        """Give up an engine whose other ranks failed, for their reason; returns when it is gone.

        A further rank with an error in its own log has that reason instead. Without an engine that loads or
        serves, nothing happens: it failed by itself.
        """
        life, child, ask = self._life, self._child, self._ask
        own = None
        if child is not None and ask is not None and ask.rank is not None and ask.rank.number:
            own = await child.complaint()
        if life is None or life.done() or self.state not in ("loading", "ready"):
            return
        if child is None or not child.ended.done():
            self.route = None
            self._fail(own or EngineFailed.of(kind, message, cause))
            if not self._clearing:
                life.cancel()
        await asyncio.wait({life})

    async def close(self) -> None:
        """Unload, and end all `news`."""
        try:
            await self.unload()
        finally:
            for listener in self._listeners:
                _offer(listener, None)

    def masked(self, error: bytes) -> bytes:
        """An error of the engine without secrets."""
        return self._mask.answer(error)

    def status(self) -> dict[str, Any]:
        """The answer of `GET /status`."""
        ask, child, error = self._ask, self._child, self._error
        here = self.state != "empty"
        reason = error.message if error else None
        if self.state == "draining":
            reason = f"unloading; requests in flight: {self.meter.at_engine}"
        loading = self.state == "loading" and self._log is not None
        return {
            "state": self.state,
            "reason": self._mask(reason) if reason else None,
            "error": self.error(),
            "engine": ask.engine if ask and here else None,
            "model_name": ask.model_name if ask and here else None,
            "pid": child.pid if child else None,
            "uptime": round(time.monotonic() - self._started, 3) if child else None,
            "in_flight": self.meter.at_engine,
            "served": self.meter.served,
            "load_seconds": self._load_seconds if here else None,
            "versions": self._versions if here else {},
            "progress": self._log.progress if loading and self._log else None,
        }

    def error(self) -> dict[str, Any] | None:
        """The reason of the state `failed`."""
        if self._error is None:
            return None
        fields = self._error.to_json()
        return {**fields, "message": self._mask(fields["message"])}

    async def news(self) -> AsyncIterator[dict[str, Any]]:
        """The current status, then one per change of state and, while loading, of progress."""
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_NEWS_KEPT)
        self._listeners.add(queue)
        try:
            yield self.status()
            while (status := await queue.get()) is not None:
                yield status
        finally:
            self._listeners.discard(queue)

    async def lost(self, route: Route, seconds: float) -> bool:
        """Whether this engine accepts no requests any more, now or within `seconds`."""
        until = time.monotonic() + seconds
        while self.route is route and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return self.route is not route

    async def explained(self) -> None:
        """Wait, a few seconds at most, until the reason is known why an engine accepts no requests."""
        while self.state == "ready" and self.route is None:
            await asyncio.sleep(0.02)

    # --- the life of one engine ------------------------------------------------------------------

    async def _live(self, ask: Load, before: asyncio.Task[None] | None) -> None:
        """The life of an engine, from start to end; however it ends, all of it is gone."""
        failure: EngineFailed | None = None
        async with contextlib.AsyncExitStack() as clear_up:
            self._clearing = False
            try:
                if before is not None:  # processes of an engine that ended may still be ending
                    clear_up.push_async_callback(asyncio.wait, {before})
                    await asyncio.wait({before})
                    if (left := self._not_gone()) is not None:
                        raise left  # the memory may not suffice for both
                await self._serve(ask, clear_up)
            except EngineFailed as error:
                failure = error
            except asyncio.CancelledError:
                pass  # unloaded
            except Exception as error:  # noqa: BLE001 - a plugin is foreign code: report its failure
                text = f"loading failed: {type(error).__name__}: {error}"
                failure = EngineFailed.of("bad_engine", text, "unknown")
            finally:
                self.route, self._clearing = None, True
            if failure is not None and self.state == "ready":
                self._fail(failure)  # at once: waiting requests need the reason
                failure = None
        left = self._not_gone()
        if left is not None and asyncio.current_task() is self._life:
            self._fail(left)  # otherwise the next life waits for this one and reports it
        elif failure is not None and self.state == "loading":
            self._fail(failure)

    async def _serve(self, ask: Load, clear_up: contextlib.AsyncExitStack) -> None:
        """Start, wait until ready, watch; ends by EngineFailed or cancellation."""
        folder = self._private_folder()
        clear_up.callback(shutil.rmtree, folder, ignore_errors=True)
        plugin = _plugin(ask.engine)
        images = None
        if self.takes_images and ask.media_root is None and getattr(plugin, "reads_files", False):
            images = folder / "i"
            images.mkdir(mode=0o700)
            ask = ask.model_copy(update={"media_root": str(images)})
        command, fields = _command(plugin, ask, folder / "s")
        bodies = Bodies(
            fields,
            checked=not getattr(plugin, "checks_media", True),
            media_root=ask.media_root,
        )
        session = self.session = engine_session(folder / "s")
        # after the engine: closing the session does not wake waiting requests, the engine's end does
        clear_up.push_async_callback(self._close, session)
        child = await self._start(command, ask, clear_up)
        sampler = Sampler(child.pid, child.mark, ask.gpus, folder / "s")
        clear_up.callback(sampler.stop)
        follows = ask.rank is not None and ask.rank.number > 0
        if not follows:  # the first rank is ready when all are; the others serve nothing
            await self._follow(child.ready(session, ask.timeout))
        self._versions = await asyncio.to_thread(_versions, getattr(plugin, "packages", ()))
        await asyncio.to_thread(child.see_shared_memory)
        if self.state != "loading":
            return
        if follows:
            self._enter("ready")
            raise await self._watch_follower(child)
        self._load_seconds = round(time.monotonic() - self._started, 3)
        self.meter.direct.begin()
        self.route = Route(session, bodies, sampler.peaks, self._mask, folder / "s", images)
        self._enter("ready")
        failing = await self._watch(child, session, ask)
        self.route = None  # at once: reading the reason of the failure may take seconds
        raise await failing

    async def _start(
        self, command: plugins.Command, ask: Load, clear_up: contextlib.AsyncExitStack
    ) -> Child:
        log = self._log = Log(self._log_path, self._mask)
        clear_up.push_async_callback(log.close)
        self.meter.starts += 1
        # a start that is cancelled halfway would leave an unknown process
        starting = asyncio.ensure_future(Child.start(command, ask.env, log, self._guard))
        clear_up.push_async_callback(self._stop, starting)
        self._child = child = await asyncio.shield(starting)
        return child

    async def _close(self, session: aiohttp.ClientSession) -> None:
        if self.session is session:
            self.session = None
        await session.close()

    async def _stop(self, starting: asyncio.Task[Child]) -> None:
        await asyncio.wait({starting})
        if starting.exception() is None:
            child = starting.result()
            try:
                await child.stop()
            except EngineFailed as error:
                self._remains = child, error
        self._child = None

    def _not_gone(self) -> EngineFailed | None:
        """The failure of an engine that ended but has surviving processes."""
        if self._remains is not None and not self._remains[0].members():
            self._remains = None
        return self._remains[1] if self._remains else None

    async def _follow(self, loading: Coroutine[Any, Any, None]) -> None:
        """Await a coroutine, and report progress once a second meanwhile."""
        task = asyncio.ensure_future(loading)
        reported = None
        try:
            while not (await asyncio.wait({task}, timeout=1))[0]:
                assert self._log is not None
                if self._log.progress != reported:
                    reported = self._log.progress
                    self._tell()
            task.result()
        finally:
            task.cancel()

    async def _watch(
        self, child: Child, session: aiohttp.ClientSession, ask: Load
    ) -> Awaitable[EngineFailed]:
        """Watch a ready engine; returns when it has failed, with an awaitable for the failure."""
        meter, probe, zombie, stall_timeout = self.meter, None, False, ask.stall_timeout
        # With more nodes it may have no request while another rank waits for it.
        stops = _Stops(child, self.stopped_looks) if ask.rank is not None else None
        looked = probed = answered = time.monotonic()
        try:
            while True:
                await asyncio.wait({child.ended}, timeout=self.look_seconds)
                now = time.monotonic()
                if child.ended.done():
                    return child.exited("while serving", now - engine_process.RECENT)
                if now - looked > 5 * self.look_seconds:  # we were stopped, and it too
                    meter.last_byte = answered = now
                    meter.direct.forget()
                looked = now
                if stops is not None and stops.look():
                    return child.failure("stopped", _STOPPED, "stalled")
                was_zombie, zombie = zombie, child.is_zombie()
                if was_zombie and zombie:  # not an engine that is just being reaped
                    text = "the engine's first process ended, but some of its threads still run"
                    since = now - engine_process.RECENT
                    return child.failure("engine_zombie", text, since=since)
                waiting, silent = meter.silence()
                if waiting:  # a client that does not read is no silence of the engine
                    answered = now
                    if silent > stall_timeout:
                        text = f"the engine has sent nothing for {silent:.0f} s"
                        text += f"; requests in flight: {waiting}"
                        since = now - silent - engine_process.RECENT
                        return child.failure("stalled", text, "stalled", since=since)
                    continue
                if probe is not None and probe.done():
                    answered, probe = now if probe.result() else answered, None
                if now - answered > max(stall_timeout, 2 * self.probe_seconds):
                    text = f"the engine has not answered /health for {now - answered:.0f} s"
                    since = answered - engine_process.RECENT
                    return child.failure("stalled", text, "stalled", since=since)
                if probe is None and now - probed > self.probe_seconds:
                    probed, probe = now, asyncio.ensure_future(healthy(session, stall_timeout))
        finally:
            if probe is not None:
                probe.cancel()

    async def _watch_follower(self, child: Child) -> EngineFailed:
        """Watch the process of a rank that serves nothing: nothing but its end says that it fails."""
        stops = _Stops(child, self.stopped_looks)
        for look in itertools.count():
            await asyncio.wait({child.ended}, timeout=self.look_seconds)
            if child.ended.done():
                break
            if stops.look():
                return await child.failure("stopped", _STOPPED, "stalled")
            if not look % _LOOKS_FOR_MEMORY:  # when it has loaded is not known here
                await asyncio.to_thread(child.see_shared_memory)
        return await child.exited("as a further rank", follows=True)

    # --- reports ---------------------------------------------------------------------------------

    def _enter(self, state: State) -> None:
        self.state = state
        self._tell()

    def _fail(self, error: EngineFailed) -> None:
        self._error = error
        self._enter("failed")

    def _tell(self) -> None:
        if self._listeners:
            status = self.status()
            for listener in self._listeners:
                _offer(listener, status)

    def _private_folder(self) -> Path:
        """Mode 0700: the engine itself requires no key."""
        try:
            return Path(tempfile.mkdtemp(prefix="e", dir=self._engine_dir))
        except OSError as error:
            text = f"cannot make a folder for the engine's socket: {error}"
            cause = "disk_full" if "No space" in text else "unknown"
            raise EngineFailed.of("bad_engine", text, cause) from None


class _Stops:
    """Counts the looks in a row at which a process of an engine was stopped."""

    def __init__(self, child: Child, most: int) -> None:
        self._child, self._most, self._count = child, most, 0

    def look(self) -> bool:
        """Whether it has been stopped for too long."""
        self._count = self._count + 1 if self._child.is_stopped() else 0
        return self._count > self._most


def _offer(queue: asyncio.Queue[dict[str, Any] | None], item: dict[str, Any] | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(item)


class _Connector(aiohttp.UnixConnector):
    """Waits for an engine whose queue of connections is full: asyncio takes that for a connection."""

    async def _create_connection(self, *how: Any) -> Any:
        while True:
            protocol = await super()._create_connection(*how)
            opened = protocol.transport
            if opened is None or opened.get_extra_info("peername") is not None:
                return protocol
            protocol.close()
            await asyncio.sleep(_QUEUE_PAUSE)


def engine_session(socket: Path) -> aiohttp.ClientSession:
    """Connections to an engine: as many as needed; idle ones close before any server closes them."""
    return aiohttp.ClientSession(
        # uvicorn, in vLLM too, closes idle connections after 5 s; a request sent at that moment is lost
        connector=_Connector(path=str(socket), limit=0, keepalive_timeout=3),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        read_bufsize=2**20,
        skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept", "Content-Type"),
    )


def _plugin(name: str) -> Any:
    try:
        return plugins.load("engines", name)
    except HpcbenchError as error:
        cause = "bad_option" if isinstance(error, UserError) else "missing_package"
        raise EngineFailed.of("bad_engine", str(error), cause) from None


def _command(plugin: Any, ask: Load, socket: Path) -> tuple[plugins.Command, dict[str, Any]]:
    """The engine's command, and the default fields of every request."""
    if len(os.fsencode(socket)) > SOCKET_BYTES:
        text = f"the path of the engine's socket is longer than {SOCKET_BYTES} bytes: {socket}"
        raise EngineFailed.of("bad_engine", text, "socket")
    left_out = {"engine", "env", "timeout", "stall_timeout", "parallel", "rank"}
    left_out |= {"options", "gpu_memory_share"}
    spec_fields = ask.model_dump(exclude=left_out)
    try:
        engine = plugin()
        options = plugins.with_share(engine, ask.options, ask.gpu_memory_share)
        spec = plugins.EngineSpec(
            socket=str(socket), parallel=ask.parallel, rank=ask.rank, options=options, **spec_fields
        )
        command: plugins.Command = engine.launch_command(spec)
        fields = engine.request_fields(spec) if hasattr(engine, "request_fields") else {}
    except HpcbenchError as error:
        cause = "bad_option" if isinstance(error, UserError) else "unknown"
        raise EngineFailed.of("bad_engine", str(error), cause) from None
    env = {**temporary(socket.parent), **command.env}
    return plugins.Command(command.argv, env), dict(fields)


def temporary(folder: Path) -> dict[str, str]:
    """Environment that puts an engine's temporary files into its own folder, which is removed with it.

    vLLM creates sockets there, named by UUIDs; if their paths were too long, no variable is set.
    """
    if len(os.fsencode(folder)) + _UUID_BYTES > SOCKET_BYTES:
        return {}
    return {"TMPDIR": str(folder), "VLLM_RPC_BASE_PATH": str(folder)}


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {"python": platform.python_version(), "hpcbench": hpcbench.__version__}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
