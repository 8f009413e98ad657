"""The wrapper as a child process in the image, with one model at a time, and the client that talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcbench import environments, plugins, secret
from hpcbench.data.staging import staging_folder
from hpcbench.environments.failures import is_apptainers_own, recognise
from hpcbench.environments.orphans import end_session
from hpcbench.errors import EnvironmentFault, RunFailed
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.inference import Client, EngineGone, LoadFailed
from hpcbench.schema.documents import Model
from hpcbench.schema.plan import Group


class EngineProcess:
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

    async def __aenter__(self) -> EngineProcess:
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


def explained(error: LoadFailed | EngineGone, log: Path) -> str:
    """The error, with the remedy if it is one that people meet."""
    tail = error.tail if isinstance(error, LoadFailed) else ()
    known = recognise("\n".join((str(error), *tail, *_tail(log))))
    return f"{error} ({known.what}; {known.remedy})" if known else str(error)
