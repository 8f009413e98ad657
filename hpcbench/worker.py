"""The process of one array task: claim → load → drive → record → next, until nothing is left.

It runs on the host side of the node, where Slurm's tools and signals are, and keeps a wrapper with the
engine as its child, inside the image, reached through a Unix socket in a private folder. SIGTERM and USR2
(the time limit is near, the job is preempted) drain: what is in flight is answered and written, then the
worker ends; its shard can be taken up by any other. A kill -9 costs the answers in flight and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench import environments, plugins, secret
from hpcbench.data.datasets import Ranges, open_dataset, samples
from hpcbench.data.staging import stage, staging_folder
from hpcbench.environments.failures import is_apptainers_own, recognise
from hpcbench.environments.orphans import end_session, reap
from hpcbench.errors import EnvironmentFault, HpcbenchError, RunFailed
from hpcbench.experiment.claims import (
    Claim,
    Fenced,
    Owner,
    ShardState,
    claim,
    shard_states,
)
from hpcbench.experiment.files import Appender
from hpcbench.experiment.layout import Experiment
from hpcbench.inference import Client, EngineGone, LoadFailed, drive
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.documents import Model, seconds
from hpcbench.schema.plan import Group, ResolvedRunTask
from hpcbench.schema.records import RECORD_VERSION, Request

PROGRESS_SECONDS = 5.0
"""Progress events are no truth, only news: rare enough for a shared file system."""

ACKNOWLEDGE_SECONDS = 0.25
"""Answers wait at most this long for their fsync."""

ENGINE_DEATHS = 2
"""A model whose engine died so often under one worker is given up by that worker."""

BALLAST_BYTES = 64 * 1024
"""Kept on the shared file system so that a full disk can still be reported."""

EXIT_DISK_FULL = 28
"""Exit code when nothing can be written any more; Slurm keeps it even then."""


def main(argv: Sequence[str]) -> None:
    """Run one worker: `hpcbench.worker EXPERIMENT GROUP`."""
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    group = next(group for group in experiment.work.groups if group.id == argv[1])
    code = asyncio.run(Worker(experiment, group, Owner.here()).run())
    if code:
        sys.exit(code)


class Worker:
    """One worker of one group."""

    def __init__(self, experiment: Experiment, group: Group, owner: Owner) -> None:
        self.experiment, self.group, self.owner = experiment, group, owner
        self.started = time.monotonic()
        self.stop = asyncio.Event()
        self.news = _News(experiment, group, owner)
        self.given_up: set[str] = set()
        self.deaths: dict[str, int] = {}
        self.longest_shard = 0.0
        self.done: set[str] = set()
        self.datasets: dict[str, DatasetIterator] = {}
        self.staged: dict[str, str] = {}
        self.chance = random.Random(owner.id)

    async def run(self) -> int:
        """Work until nothing is left; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, signal.Signals(number).name)
        try:
            self.news.open()
            if reaped := reap():
                self.news.write("orphans_reaped", names=reaped)
            async with _Wrapper(self.experiment, self.group, self.owner) as wrapper:
                await self._work(wrapper)
            return self.news.close("stopped" if self.stop.is_set() else "finished")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return self.news.disk_full(error)
        except HpcbenchError as error:
            return self.news.close("failed", message=str(error), exit_code=error.exit_code)

    async def _work(self, wrapper: _Wrapper) -> None:
        while not self.stop.is_set():
            state = self._choose(wrapper.model)
            if state is None:
                return
            run_task = self.experiment.resolved.run_task(state.shard.run_task)
            near = await self._near(run_task.model.source)
            model = run_task.model.model_copy(update={"source": near})
            if not await self._load(wrapper, model):
                continue
            taken = claim(self.experiment, state, self.owner)
            if taken is not None:
                begun = time.monotonic()
                await self._shard(wrapper, run_task, taken)
                self.longest_shard = max(self.longest_shard, time.monotonic() - begun)

    def _choose(self, loaded: str | None) -> ShardState | None:
        """The next shard to try: our own from before a requeue, of the loaded model, else any."""
        left = seconds(self.group.resources.time_limit) - (time.monotonic() - self.started)
        if self.longest_shard and left < 1.5 * self.longest_shard:
            self.news.write("time_limit_near", seconds_left=round(left))
            return None
        resolved = self.experiment.resolved
        known = shard_states(self.experiment, self.group.run_tasks, skip=self.done)
        self.done.update(state.shard.id for state in known if state.state == "done")
        states = [
            state
            for state in known
            if (state.claimable or self._mine(state))
            and resolved.run_task(state.shard.run_task).model.name not in self.given_up
        ]
        if not states:
            return None

        def preference(state: ShardState) -> tuple[bool, bool]:
            model = resolved.run_task(state.shard.run_task).model.name
            return (not self._mine(state), loaded is not None and model != loaded)

        best = min(map(preference, states))
        likely = [state for state in states if preference(state) == best]
        # Nearly in order, but workers that start together do not all reach for the same shard.
        return self.chance.choice(likely[: 2 * self.group.workers])

    def _mine(self, state: ShardState) -> bool:
        """Whether an earlier run of this very array task left it behind."""
        owner = state.owner
        return (
            state.state == "claimed"
            and owner is not None
            and owner["job"] == self.owner.job
            and owner["restart"] < self.owner.restart
        )

    async def _near(self, source: str) -> str:
        """A copy on this node of a dataset or model, where the site wants one and there is room."""
        wanted = self.experiment.resolved.site.staging
        if wanted is None:
            return source
        if source not in self.staged:
            begun = time.monotonic()
            self.staged[source] = source
            try:
                folder = staging_folder(wanted)
                copied = await asyncio.to_thread(stage, Path(source), folder)
            except EnvironmentFault as fault:
                self.news.write("staging_skipped", source=source, message=str(fault))
            else:
                self.staged[source] = str(copied)
                taken = round(time.monotonic() - begun, 1)
                self.news.write("staged", source=source, path=str(copied), seconds=taken)
        return self.staged[source]

    async def _load(self, wrapper: _Wrapper, model: Model) -> bool:
        """Have the model loaded; False if it cannot be, which is told once and ends its shards here."""
        if wrapper.model == model.name:
            return True
        self.news.write("model_loading", sync=True, model=model.name)
        loading = asyncio.ensure_future(wrapper.load(model))
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            await asyncio.wait({loading})
            return False
        try:
            seconds_taken = loading.result()
        except (LoadFailed, EngineGone) as error:
            self.given_up.add(model.name)
            self.news.write(
                "model_failed",
                sync=True,
                model=model.name,
                message=_explained(error, wrapper.log),
                log=str(wrapper.log),
            )
            return False
        self.news.write("model_ready", sync=True, model=model.name, seconds=round(seconds_taken, 1))
        return True

    async def _shard(self, wrapper: _Wrapper, run_task: ResolvedRunTask, taken: Claim) -> None:
        """Ask every sample of the shard that has no answer yet."""
        try:
            await self._ask(wrapper, run_task, taken)
        except Fenced as fenced:
            taken.abandon()
            self.news.write("fenced", message=str(fenced))
        except EngineGone as gone:
            taken.end("drained", reason=str(gone))
            self._engine_died(wrapper, run_task.model, gone)
        except OSError:
            taken.abandon()
            raise
        except HpcbenchError as error:
            taken.end("failed", reason=str(error))
            self.news.write("shard_failed", sync=True, shard=taken.shard.id, message=str(error))
        else:
            whole = len(taken.answered) == taken.shard.stop - taken.shard.start
            taken.end("done" if whole else "drained")

    async def _ask(self, wrapper: _Wrapper, run_task: ResolvedRunTask, taken: Claim) -> None:
        last_sync = last_news = time.monotonic()
        if run_task.name not in self.datasets:
            cache = self.experiment.cache_dir
            near = await self._near(run_task.dataset.source)
            dataset = run_task.dataset.model_copy(update={"source": near})
            self.datasets[run_task.name] = open_dataset(dataset, cache)
        chosen = self.experiment.chosen(run_task.name)
        requests = _requests(run_task, self.datasets[run_task.name], chosen, taken)
        responses = drive(wrapper.client, requests, run_task.task.concurrency, self.stop)
        async with contextlib.aclosing(responses) as stream:
            async for response in stream:
                taken.record(response)
                now = time.monotonic()
                if now - last_sync >= ACKNOWLEDGE_SECONDS:
                    await asyncio.to_thread(taken.acknowledge)
                    last_sync = now
                if now - last_news >= PROGRESS_SECONDS:
                    self.news.write("progress", shard=taken.shard.id, answered=len(taken.answered))
                    last_news = now
        taken.acknowledge()

    def _engine_died(self, wrapper: _Wrapper, model: Model, gone: EngineGone) -> None:
        wrapper.model = None
        self.deaths[model.name] = self.deaths.get(model.name, 0) + 1
        self.news.write("engine_died", sync=True, model=model.name, message=str(gone))
        if self.deaths[model.name] >= ENGINE_DEATHS:
            self.given_up.add(model.name)
            self.news.write(
                "model_failed",
                sync=True,
                model=model.name,
                message=f"the engine died {ENGINE_DEATHS} times: {gone}",
                log=str(wrapper.log),
            )

    def _drain(self, name: str) -> None:
        if not self.stop.is_set():
            self.stop.set()
            self.news.write("draining", signal=name)


def _requests(
    run_task: ResolvedRunTask, dataset: DatasetIterator, chosen: Ranges, taken: Claim
) -> Iterator[Request]:
    """What is still to be asked, in the dataset's order."""
    task = run_task.task
    prompt = TaskPrompt(run_task)
    settings = task.generation.model_dump(mode="json")
    extra = settings.pop("extra")
    generation = {key: value for key, value in settings.items() if value not in (None, [])} | extra
    generation |= prompt.generation
    for sample in samples(dataset, chosen, taken.shard.start, taken.shard.stop):
        if sample.id not in taken.answered:
            messages, name = prompt.build(sample), prompt.name(sample)
            yield Request(sample.id, messages, generation, task.request_timeout, name)


class _Wrapper:
    """The wrapper as a child process in the image, and the client that talks to it."""

    def __init__(self, experiment: Experiment, group: Group, owner: Owner) -> None:
        self.group = group
        self.site = experiment.resolved.site
        self.log = experiment.worker_log(group.id, owner.id)
        self.model: str | None = None
        self.client: Client
        self._models = {
            run_task.model.name: run_task.model
            for run_task in experiment.resolved.run_tasks
            if run_task.name in group.run_tasks
        }
        stored: Mapping[str, Any] = experiment.manifest["environments"]  # type: ignore[assignment]
        self._environment = plugins.Environment(**stored[group.environment])
        self._key = secrets.token_urlsafe(32)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._clean_up = contextlib.AsyncExitStack()

    async def __aenter__(self) -> _Wrapper:
        self._folder = Path(tempfile.mkdtemp(prefix="hpcbench-", dir=_scratch(self.site.scratch)))
        self._clean_up.callback(shutil.rmtree, self._folder, ignore_errors=True)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._end_process()
        await self._clean_up.aclose()

    async def load(self, model: Model) -> float:
        """Have the wrapper up with this model and no other; returns seconds it took."""
        begun = time.monotonic()
        if self._process is None or self._process.poll() is not None:
            await self._start_process()
        if self.model is not None or (await self.client.status())["state"] != "empty":
            await self.client.unload()
            self.model = None
        self.client = await self._client(model)
        body = {
            "engine": model.engine,
            "model_path": model.source,
            "model_name": model.name,
            "dtype": model.dtype,
            "context_length": model.context_length,
            "gpus": model.gpus,
            "chat_template": model.chat_template,
            "options": dict(model.engine_options),
            "env": secret.reveal_all(dict(model.env)),
            "timeout": model.load_timeout,
        }
        await self.client.load(body, model.load_timeout + 30)
        self.model = model.name
        return time.monotonic() - begun

    async def _start_process(self) -> None:
        assert self._folder is not None
        await self._end_process()
        socket = self._folder / f"{secrets.token_hex(3)}.sock"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        command = environments.wrap(
            self._environment,
            ["python", "-m", "hpcbench.wrapper", "--socket", str(socket)]
            + ["--engine-dir", str(self._folder), "--log", str(self.log)],
            mounts=self._mounts(),
            env={
                "HF_HUB_OFFLINE": "1",
                "PYTHONUNBUFFERED": "1",
                # More threads than CPUs of the job would wait for each other.
                "OMP_NUM_THREADS": str(self.group.resources.cpus),
            },
            gpus=self.group.gpus,
            container=self.site.container,
        )
        with self.log.open("ab") as log:
            # The key goes through the pipe: it is in no argv, no environment and no file. The pipe's
            # end tells the wrapper that this worker is gone, even by kill -9.
            self._process = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(self._key.encode() + b"\n")
        self._process.stdin.flush()
        self._socket = str(socket)
        self.client = await self._client(next(iter(self._models.values())))
        await self._wait_until_up()

    async def _client(self, model: Model) -> Client:
        client = Client(self._socket, self._key, model.name)
        return await self._clean_up.enter_async_context(client)

    async def _wait_until_up(self) -> None:
        assert self._process is not None
        longest = self._environment.start_seconds
        deadline = time.monotonic() + longest
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                code, tail = self._process.returncode, _tail(self.log)
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
                await asyncio.sleep(0.1)
            else:
                return
        raise LoadFailed(
            "wrapper_timeout",
            f"the wrapper did not answer within {longest:.0f} s",
            log=str(self.log),
        )

    async def _end_process(self) -> None:
        """Close the pipe, which ends wrapper and engine; kill the group if that is not enough."""
        process, self._process = self._process, None
        self.model = None
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)
            end_session(process.pid)

    def _mounts(self) -> list[str]:
        folders = [model.source for model in self._models.values()]
        if self.site.staging is not None:
            with contextlib.suppress(EnvironmentFault):  # told where it was to be used
                folders.append(str(staging_folder(self.site.staging)))
        mounts = [f"{folder}:{folder}:ro" for folder in dict.fromkeys(folders)]
        # The log alone: beside it lie the events of all workers, which no engine has to see.
        return [str(self._folder), str(self.log), *mounts]


class _News:
    """The worker's own events file, and the last word when the disk is full."""

    def __init__(self, experiment: Experiment, group: Group, owner: Owner) -> None:
        self._path = experiment.worker_events(group.id, owner.id)
        self._ballast = self._path.with_suffix(".ballast")
        self._owner = owner
        self._file: Appender | None = None

    def open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Random bytes: a file of zeros may take no room on a compressing file system.
        self._ballast.write_bytes(os.urandom(BALLAST_BYTES))
        self._file = Appender(self._path)
        self.write(
            "started",
            sync=True,
            version=RECORD_VERSION,
            owner=asdict(self._owner),
            hpcbench=hpcbench.__version__,
            gpus=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        )

    def write(self, event: str, *, sync: bool = False, **details: Any) -> None:
        if self._file is not None:
            known = {
                key: secret.mask(value) if isinstance(value, str) else value
                for key, value in details.items()
            }
            self._file.write({"event": event, "time": round(time.time(), 3), **known})
            if sync:
                self._file.sync()

    def close(self, event: str, exit_code: int = 0, **details: Any) -> int:
        self.write(event, sync=True, **details)
        self._ballast.unlink(missing_ok=True)
        if self._file is not None:
            self._file.close()
        return exit_code

    def disk_full(self, error: OSError) -> int:
        """Give the ballast's room to one last event."""
        self._ballast.unlink(missing_ok=True)
        what = "quota exceeded" if error.errno == errno.EDQUOT else "no space left"
        with contextlib.suppress(OSError):
            self.close("disk_full", message=f"disk full: {what} below {self._path.parent.parent}")
        return EXIT_DISK_FULL


def _scratch(wanted: str | None) -> str | None:
    """A node-local folder whose sockets' paths stay below the kernel's 107 bytes."""
    for candidate in (wanted, "$SLURM_TMPDIR", "$TMPDIR"):
        path = os.path.expandvars(candidate) if candidate else ""
        if path and "$" not in path and len(path) < 60 and os.access(path, os.W_OK):
            return path
    if os.access("/tmp", os.W_OK):
        return "/tmp"
    raise EnvironmentFault(
        "no writable node-local folder", remedy="set `scratch` in the site profile"
    )


def _tail(log: Path) -> list[str]:
    """The last lines of a log that say something."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [line.strip() for line in lines[-40:] if line.strip()]


def _explained(error: LoadFailed | EngineGone, log: Path) -> str:
    """The error, with the remedy if it is one that people meet."""
    tail = error.tail if isinstance(error, LoadFailed) else ()
    known = recognise("\n".join((str(error), *tail, *_tail(log))))
    return f"{error} ({known.what}; {known.remedy})" if known else str(error)


if __name__ == "__main__":
    main(sys.argv[1:])
