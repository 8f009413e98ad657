"""The wrapper as a child process in the image, with one model at a time, and the wrapper's client."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import environments, plugins, secret
from hpcbench.data.staging import staging_folder
from hpcbench.environments.failures import is_apptainers_own, recognise
from hpcbench.environments.orphans import end_session, held_folder, scratch
from hpcbench.errors import EnvironmentFault, HpcbenchError, RunFailed
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.files.tail import last_bytes
from hpcbench.inference.client import Client, EngineGone, LoadFailed, load_body
from hpcbench.inference.rate_limits import RateLimits, Shared
from hpcbench.inference.tokens import counter
from hpcbench.monitor.devices import handles
from hpcbench.monitor.engine_log import LoggedMemory, logged_memory
from hpcbench.monitor.engine_metrics import over_socket
from hpcbench.plugins import Command
from hpcbench.sanitize import sanitize
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Group, ResolvedRunTask
from hpcbench.worker.engine_nodes import EngineNodes
from hpcbench.worker.event_log import EventSink
from hpcbench.worker.loopback import on_loopback
from hpcbench.worker.ranks import RankFailure
from hpcbench.wrapper.bodies import same_rules

LOG_BYTES = 4 * 2**20
"""Most bytes of an engine's log that are searched for memory reports."""

TAIL_BYTES = 2**16
"""Bytes at a log's end that are read for its last lines."""

START_POLL_SECONDS = 0.02
"""Interval of checks whether a starting wrapper is up; a failed check only costs a `connect`."""


TAKEN = "machine_taken"
"""Cause of the end of an engine whose rented machine was taken away."""

TAKEN_SECONDS = 120.0
"""Longest wait for a runner's end when its engine is gone: it asks whether the machine was taken away."""

LOCK_POLL_SECONDS = 0.2
"""Interval of tries to load on a GPU on which another engine loads."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model, ready for requests."""

    seconds: float
    """Seconds from the load request to the first answer to `/health`."""
    pid: int | None
    """The engine's first process, by its own number."""
    versions: Mapping[str, str]
    """Versions of distributions in its environment."""
    memory: LoggedMemory
    """Memory figures in its log."""
    uncounted: str
    """Reason why answers' tokens cannot be recounted; empty: they are recounted."""


class EngineProcess:
    """The wrapper as a child process in the image, and the wrapper's client.

    Args:
        experiment: the experiment.
        group: the worker's group.
        owner: the worker.
        unloaded: awaited after an engine on this machine has ended, before another one starts.
        log: the engine's log; None: the worker's.
        run_tasks: the run tasks that it serves; none: those of the group.
        devices: entries of CUDA_VISIBLE_DEVICES, where it may not have all GPUs of the job; None: it may.
        events: receives events of the engine's further nodes; None: they are not logged.
    """

    def __init__(
        self,
        experiment: Experiment,
        group: Group,
        owner: Owner,
        unloaded: Callable[[], Awaitable[None]],
        log: Path | None = None,
        *,
        run_tasks: Sequence[ResolvedRunTask] = (),
        devices: Sequence[str] | None = None,
        events: EventSink | None = None,
    ) -> None:
        self._events = events
        self.group = group
        self._experiment, self._owner = experiment, owner
        self.site = experiment.resolved.site
        self.log = log or experiment.worker_log(group.id, owner.id)
        self.model: str | None = None
        self.client: Client
        self.run_tasks = run_tasks or [
            run_task
            for run_task in experiment.resolved.run_tasks
            if run_task.name in group.run_tasks
        ]
        self._devices = {} if devices is None else {"CUDA_VISIBLE_DEVICES": ",".join(devices)}
        self._measured, self._stored = experiment.measured, experiment.manifest.environments
        self._environment = plugins.Environment(**self._stored[group.environment])
        self._request_bytes: int | None = None
        """Maximum size of a request that its wrapper is started with; None: the wrapper's own."""
        self.elsewhere = self._environment.kind in environments.ELSEWHERE
        """Whether it runs on another machine, whose memory and GPUs cannot be read from here."""
        self._key = secrets.token_urlsafe(32)
        self._folder: Path
        self._grpc_socket: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._held = contextlib.ExitStack()
        self._clients = contextlib.AsyncExitStack()
        self._unloaded, self._used = unloaded, False
        self._log_begins = 0
        """Length of the log when the last load began."""
        self._nodes: EngineNodes | None = None
        """The loaded engine's other nodes, if it has some."""
        self._limits: dict[str, RateLimits] = {}
        """Model → what is known of its gateway's rate limits."""

    async def __aenter__(self) -> EngineProcess:
        self._folder = self._held.enter_context(held_folder(scratch(self.site.scratch)))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._end_nodes()
        await self._end_process()
        await self._clients.aclose()
        self._held.close()
        await self._see_it_gone()

    async def load(
        self,
        model: Model,
        on_progress: Callable[[str], None],
        on_start: Callable[[], None] = lambda: None,
    ) -> Loaded:
        """Start the wrapper, if needed, and load this model as its only one.

        Engines that share a GPU load one after the other: each measures the memory that the others left.

        Args:
            model: the model, from the nearest copy.
            on_progress: receives lines of the engine's output while it loads.
            on_start: is called when the engine starts: from then on `gauges` are those of this one.

        Raises:
            LoadFailed: it did not become ready.
            EngineGone: the wrapper is gone.
        """
        async with contextlib.AsyncExitStack() as held:
            if self.group.sharing > 1:
                for gpu in await asyncio.to_thread(handles):
                    await held.enter_async_context(_alone(f"hpcbench-{self._owner.job}-{gpu}"))
            return await self._load(model, on_progress, on_start)

    async def _load(
        self, model: Model, on_progress: Callable[[str], None], on_start: Callable[[], None]
    ) -> Loaded:
        started = time.monotonic()
        self._log_begins = self.log.stat().st_size if self.log.exists() else 0
        tasks = [task for task in self.run_tasks if task.model.name == model.name]
        await self._end_nodes()
        await self._be_in(tasks[0].environment, model.request_bytes)
        if self._process is None or self._process.poll() is not None:
            await self._start_process()
        if self.model is not None or (await self.client.status())["state"] != "empty":
            await self.client.unload()
            self.model = None
        await self._see_it_gone()
        recount, uncounted = _counter(model)
        files_under = self._media_root(tasks)
        await self._talk_to(
            model.name,
            files_under=files_under,
            recount=recount,
            limits=self._limits_of(model),
            # A relay to an endpoint is a hop in any case, and the wrapper counts its answers.
            rules=same_rules if model.source and not self.elsewhere else None,
        )
        images = [task.most_images(self._measured.images.get(task.name, 0)) for task in tasks]
        # Each turn of an agent sends the whole conversation again.
        reuse = [
            task.agent is not None or self._measured.reuse.get(task.name, False) for task in tasks
        ]
        # What an agent needs of the engine changes nothing for other run tasks of the same model.
        if any(task.agent is not None for task in tasks):
            model = model.for_agents()
        body = load_body(
            model,
            # An engine resolves references in its options itself: they are in its argument list.
            {**secret.variables(model.engine_options), **secret.reveal_all(dict(model.env))},
            media_root=str(files_under) if files_under else None,
            cpus=self.group.resources.cpus,
            images=max(images) if all(images) else 0,
            # Points of a sweep send the same samples, and so do arms of one load: the first one's cache
            # entries would flatter the others.
            reuse=any(reuse) and not any(task.sweep for task in tasks) and not _both_arms(tasks),
        )
        self._used = not self.elsewhere
        on_start()
        timeout = model.load_timeout + 30
        if self.group.nodes > 1:
            self._nodes = EngineNodes(
                self._experiment, self.group, self._owner.id, self.client, self.log, self._events
            )
            ready = await self._nodes.load(
                body, model, tasks[0].environment, timeout, on_progress=on_progress
            )
        else:
            ready = await self.client.load(body, timeout, on_progress=on_progress)
        self.model = model.name
        return Loaded(
            seconds=time.monotonic() - started,
            pid=ready["pid"],
            versions=ready["versions"] or {},
            memory=self.logged_memory(),
            uncounted=uncounted,
        )

    def logged_memory(self) -> LoggedMemory:
        """Memory figures in the engine's log since the last load began."""
        return logged_memory(self.logged())

    def logged(self) -> list[str]:
        """Lines of the log since the last load began, if there is one; of a very long log the first ones."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_begins)
                return file.read(LOG_BYTES).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []

    async def follow(self, environment: str, body: Mapping[str, Any]) -> None:
        """Start the wrapper and a further rank of an engine; the client's `status` tells what becomes of it.

        Raises:
            LoadFailed: the wrapper does not start, or refuses.
            EngineGone: the wrapper is gone.
        """
        await self._be_in(environment)
        await self._start_process()
        await self.client.begin(body)

    def command(
        self, argv: Sequence[str], mounts: Sequence[str], env: Mapping[str, str]
    ) -> Command:
        """The command that runs another program where the engine runs, with the same GPUs.

        Raises:
            EnvironmentFault: the image, or a folder to mount, is not on this machine.
        """
        return environments.wrap(
            self._environment, argv, mounts, env, self.group.gpus, self.site.container
        )

    @contextlib.asynccontextmanager
    async def over_tcp(self) -> AsyncIterator[tuple[str, str]]:
        """The wrapper's URL on a port of this machine, and its key, for a program that asks the model."""
        async with on_loopback(self._socket) as port:
            yield f"http://127.0.0.1:{port}", self._key

    async def cause(self, blamed: RankFailure | None) -> str:
        """The cause of the engine's end by the rank to blame, or by the wrapper; else `unknown`."""
        if await self.taken():
            return TAKEN
        if blamed is not None:
            return blamed.cause
        try:
            return str((await self.client.status())["error"]["cause"])
        except (HpcbenchError, OSError, KeyError, TypeError):
            return "unknown"

    async def taken(self) -> bool:
        """Whether the rented machine was taken away, which says nothing about the model."""
        if not self.elsewhere or self._process is None:
            return False
        with contextlib.suppress(HpcbenchError, OSError):
            await self.client.status()
            return False
        from hpcbench.environments import rented  # most engines run on a machine of the site

        try:  # its runner asks the provider first
            return await asyncio.to_thread(self._process.wait, TAKEN_SECONDS) == rented.TAKEN
        except subprocess.TimeoutExpired:
            return False

    async def blamed(self) -> RankFailure | None:
        """The rank to blame for the end of an engine with several nodes; all its ranks are ended then."""
        return await self._nodes.broken() if self._nodes is not None else None

    def mark(self, phase: str) -> None:
        """Start a phase in the monitors of the engine's further nodes."""
        if self._nodes is not None:
            self._nodes.mark(phase)

    @property
    def nodes(self) -> list[str]:
        """Nodes of an engine that has several; else empty."""
        return self._nodes.nodes if self._nodes is not None else []

    @property
    def other_machines(self) -> list[Mapping[str, Any]]:
        """Descriptions of the loaded engine's other nodes, as `monitor.devices.machine` gives them."""
        return self._nodes.machines if self._nodes is not None else []

    async def _end_nodes(self) -> None:
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            await nodes.end()

    def _limits_of(self, model: Model) -> RateLimits:
        """Rate limits of a model elsewhere, which the workers of a node share; they outlive a load."""
        if model.name not in self._limits:
            shared = None
            if "base_url" in model.engine_options:  # the gateway counts by credential
                named = [model.engine_options.get(key) for key in ("base_url", "auth")]
                key = json.dumps([*named, model.env.get("API_KEY")], sort_keys=True)
                shared = Shared(scratch(self.site.scratch), key)
            self._limits[model.name] = RateLimits(shared)
        return self._limits[model.name]

    def client_for(self, run_task: ResolvedRunTask) -> Client:
        """The client, which sends requests as a run task wants them sent."""
        self.client.protocol = run_task.task.protocol
        return self.client

    def gauges(self) -> Callable[[], str]:
        """A function that requests the engine's metrics."""
        return over_socket(Path(self._socket), self._key)

    async def _see_it_gone(self) -> None:
        """Wait for the cleanup after the previous engine, if there was one."""
        # The memory of a shared GPU does not return to what it was: the others' engines hold theirs.
        used, self._used = self._used, False
        if used and self.group.sharing == 1:
            await self._unloaded()

    async def _be_in(self, environment: str, request_bytes: int | None = None) -> None:
        """End the wrapper if a model needs another environment, or another limit of requests.

        Arms may differ in both. None: the model has no requests here, or the wrapper's own limit.
        """
        wanted = plugins.Environment(**self._stored[environment])
        if (wanted, request_bytes) != (self._environment, self._request_bytes):
            await self._end_process()
            self._environment, self._request_bytes = wanted, request_bytes

    def _media_root(self, tasks: Sequence[ResolvedRunTask]) -> Path | None:
        """The folder below which images are named instead of sent, if a run task requests that."""
        folders = [task.dataset.source for task in tasks if task.task.images == "file"]
        if not folders:
            return None
        if self.site.staging is not None:
            with contextlib.suppress(EnvironmentFault):
                folders.append(str(staging_folder(self.site.staging)))
        return Path(os.path.commonpath(folders))

    async def _start_process(self) -> None:
        await self._end_process()
        socket = self._folder / f"{secrets.token_hex(3)}.sock"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self._grpc_socket = None
        if any(task.task.protocol == "grpc" for task in self.run_tasks):
            self._grpc_socket = str(socket.with_suffix(".grpc"))
        command = environments.wrap(
            self._environment,
            ["python", "-m", "hpcbench.wrapper", "--socket", str(socket)]
            + ["--engine-dir", str(self._folder), "--log", str(self.log)]
            + (["--worker-socket", self._grpc_socket] if self._grpc_socket else [])
            # Only where a definition has it: a wrapper of an earlier version may be in the image.
            + (["--request-limit", str(self._request_bytes)] if self._request_bytes else []),
            mounts=self._mounts(),
            env={
                "HF_HUB_OFFLINE": "1",
                "PYTHONUNBUFFERED": "1",
                # More threads than CPUs of the job would wait for each other.
                "OMP_NUM_THREADS": str(self.group.resources.cpus),
                **self._devices,
            },
            gpus=self.group.gpus,
            container=self.site.container,
        )
        with self.log.open("ab") as log:
            # The key goes through the pipe: no argument list, environment or file contains it. The pipe's end
            # tells the wrapper that this worker is gone, even by kill -9.
            self._process = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: reported at the wait
            self._process.stdin.write(self._key.encode() + b"\n")
            self._process.stdin.flush()
        self._socket = str(socket)
        await self._talk_to("")  # only for its state
        await self._wait_until_up()

    async def _talk_to(self, model_name: str, **how: Any) -> None:
        """Create a client for this model, and close the previous one: each has threads and connections."""
        await self._clients.aclose()
        how["grpc_socket"] = self._grpc_socket
        client = Client(self._socket, self._key, model_name, **how)
        self.client = await self._clients.enter_async_context(client)

    async def _wait_until_up(self) -> None:
        assert self._process is not None
        longest = self._environment.start_seconds
        deadline = time.monotonic() + longest
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                code, tail = self._process.returncode, last_lines(self.log)
                if is_apptainers_own(code, "\n".join(tail)):
                    raise LoadFailed(
                        "container_failed",
                        f"the container did not start: {tail[-1]}",
                        str(self.log),
                    )
                said = tail[-1] if tail else "no output"
                raise LoadFailed(
                    "wrapper_exited",
                    f"the wrapper ended with exit code {code}: {said}",
                    log=str(self.log),
                )
            try:
                await self.client.status()
            except (RunFailed, OSError):
                await asyncio.sleep(START_POLL_SECONDS)
            else:
                return
        raise LoadFailed(
            "wrapper_timeout",
            f"the wrapper did not answer within {longest:.0f} s",
            log=str(self.log),
        )

    async def _end_process(self) -> None:
        """End the wrapper, which tidies up after its engine: a cancellation waits for that."""
        process, self._process = self._process, None
        self.model = None
        if process is None:
            return
        ending = asyncio.ensure_future(asyncio.to_thread(_end, process))
        try:
            await asyncio.shield(ending)
        finally:
            await asyncio.wait({ending})

    def _mounts(self) -> list[str]:
        folders = [task.model.source for task in self.run_tasks if task.model.source]
        folders += [task.dataset.source for task in self.run_tasks if task.task.images == "file"]
        if self.site.staging is not None:
            with contextlib.suppress(EnvironmentFault):  # reported where the folder is used
                folders.append(str(staging_folder(self.site.staging)))
        mounts = [f"{folder}:{folder}:ro" for folder in dict.fromkeys(folders)]
        # Only the log: its folder has the events of all workers, which an engine need not see.
        return [str(self._folder), str(self.log), *mounts]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close a wrapper's pipe, which ends it and its engine; kill its group if it does not end."""
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end_session(process.pid)


@contextlib.asynccontextmanager
async def _alone(name: str) -> AsyncIterator[None]:
    """Wait until no other process of this node is in a block of this name.

    The name of a Unix socket without a file is the lock: the kernel frees it however its holder ends.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        while True:
            try:
                lock.bind(f"\0{name}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            await asyncio.sleep(LOCK_POLL_SECONDS)
        yield


def _counter(model: Model) -> tuple[Callable[[str], int] | None, str]:
    if not model.source:
        return None, f"model '{model.name}' has no tokenizer on this machine"
    return counter(Path(model.source))


def _both_arms(tasks: Sequence[ResolvedRunTask]) -> bool:
    """Whether the tasks include two arms of one run task."""
    pairs = [task.pair for task in tasks if task.pair is not None]
    return len(set(pairs)) < len(pairs)


def last_lines(log: Path) -> list[str]:
    """The last non-empty lines of a log."""
    try:
        lines = last_bytes(log, TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in map(sanitize, lines[-40:]) if line.strip()]


def explained(error: LoadFailed | EngineGone, log: Path) -> str:
    """The error, with the remedy if it is a common one."""
    tail = error.tail if isinstance(error, LoadFailed) else ()
    known = recognise("\n".join((str(error), *tail, *last_lines(log))))
    if known:
        return f"{error} ({known.what}; {known.remedy})"
    remedy = error.remedy if isinstance(error, LoadFailed) else None
    return f"{error} ({remedy})" if remedy else str(error)
