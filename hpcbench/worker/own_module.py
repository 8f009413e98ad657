"""An ML task's own module: `python -m MODULE` answers the samples of a shard itself, as tasks of v0.2 do.

docs/own-modules.md is the contract. The module runs in the environment of its model's engine, in a folder
of its own. It reads `run_task.json` there, asks the model over HTTP if it wants to, and writes `answers.csv`.
Its answers count when it has ended with exit code 0; what it wrote before it failed does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hpcbench import secret
from hpcbench.data_uri import mime
from hpcbench.environments.orphans import end_session, held_folder, scratch
from hpcbench.errors import RunFailed, UserError
from hpcbench.files.tail import last_bytes
from hpcbench.inference.client import EngineGone
from hpcbench.inference.request_body import read_image, unreadable
from hpcbench.plugins import Command
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Image, Request, Response, Sample, Times
from hpcbench.variables import past_proxies
from hpcbench.worker.engine import EngineProcess
from hpcbench.wrapper.engine_output import Log
from hpcbench.wrapper.masking import Mask
from hpcbench.wrapper.process_tree import die_with_parent

ASKED, ANSWERS = "run_task.json", "answers.csv"
"""Files in a module's folder: the one that it reads, and the one that it writes."""

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""

MOST_BYTES = 2**30
"""Largest file of answers."""

Cause = Literal[
    "module_not_found", "module_failed", "module_killed", "module_timeout", "module_answers"
]
"""Why a module gave no answers: Python does not find it; its exit code is not 0; a signal ended it; it took
too long; what it wrote is not what the contract says."""


class ModuleFailed(RunFailed):
    """A module gave no answers to a shard."""

    def __init__(self, module: str, cause: Cause, message: str) -> None:
        super().__init__(f"module '{module}' {message}")
        self.cause = cause


@dataclass(frozen=True, slots=True)
class _Asked:
    """A sample that a module is asked about."""

    sample_id: str
    prompt: str


class OwnModule:
    """Runs the module of a run task's ML task.

    Args:
        run_task: the run task.
        wrapper: the loaded model.
        data: folder of the run task's dataset on this node.
        mode: RUN_MODE of the plan.
    """

    def __init__(
        self, run_task: ResolvedRunTask, wrapper: EngineProcess, data: Path, mode: str
    ) -> None:
        assert run_task.ml_task.module is not None
        self._run_task, self._wrapper, self._data, self._mode = run_task, wrapper, data, mode
        self.module = run_task.ml_task.module

    async def answers(
        self, samples: Iterable[tuple[Sample, Request]], at_once: int, stop: asyncio.Event
    ) -> Sequence[Response]:
        """The module's answers to some samples; none if `stop` is set before it ends.

        A sample without an answer in the module's file has failed, as a request without an answer has.

        Raises:
            ModuleFailed: it gave none.
            EngineGone: it failed, and its model is not loaded any more.
        """
        with held_folder(scratch(self._wrapper.site.scratch)) as held:
            folder = held / "module"
            folder.mkdir()
            asked, refused = await asyncio.to_thread(self._write, folder, samples)
            begin = time.monotonic_ns()
            if asked and not await self._run(folder, len(asked), at_once, stop):
                return ()
            found = await asyncio.to_thread(self._read, folder, asked) if asked else {}
            times = Times(begin, begin, None, (), time.monotonic_ns())
            return [
                *refused,
                *(_response(one, found.get(one.sample_id), times) for one in asked),
            ]

    def _write(
        self, folder: Path, samples: Iterable[tuple[Sample, Request]]
    ) -> tuple[list[_Asked], list[Response]]:
        """Write what the module reads; returns its samples, and the answers to those without an image."""
        asked, refused, items = list[_Asked](), list[Response](), list[dict[str, Any]]()
        pages, generation = folder / "images", dict[str, Any]()
        for number, (sample, request) in enumerate(samples):
            one = _Asked(sample.id, request.prompt)
            try:
                items.append(self._item(sample, request, pages / f"{number:05d}"))
                asked.append(one)
            except OSError as error:
                now = time.monotonic_ns()
                times = Times(now, now, None, (), now)
                refused.append(_response(one, None, times, "invalid", unreadable(error)))
            generation = dict(request.generation)
        run_task = self._run_task
        model = {
            "name": run_task.model.name, "framework": run_task.model.engine, "params": generation,
        }  # fmt: skip
        whole = {
            "name": run_task.name,
            "ml_task": run_task.ml_task.name,
            "model": model,
            "dataset": run_task.dataset.name,
            "metrics": [one.name for one in run_task.metrics],
            "items": items,
        }
        text = json.dumps(whole, ensure_ascii=False, indent=1, default=str)
        (folder / ASKED).write_text(text, encoding="utf-8")
        return asked, refused

    def _item(self, sample: Sample, request: Request, pages: Path) -> dict[str, Any]:
        """A sample in v0.2's words, without its references.

        Args:
            sample: the sample.
            request: its request, with the prompt.
            pages: folder for copies of its images.

        Raises:
            OSError: an image cannot be read.
        """
        system = [one.text for one in request.messages if one.role == "system"]
        user = request.messages[-1]
        images = [str(self._file(image, pages, n)) for n, image in enumerate(user.images)]
        return {
            "id": sample.id,
            "image_path": images[0] if images else None,
            "images": images,
            "metadata": {**sample.metadata, **sample.fields},
            "system_prompt": "\n\n".join(system) or None,
            "user_prompt": user.text or None,
        }

    def _file(self, image: Image, pages: Path, number: int) -> Path:
        """An image as a file that the module sees: in the dataset's folder, or a copy."""
        if isinstance(image, Path) and image.resolve().is_relative_to(self._data.resolve()):
            with image.open("rb"):
                return image.resolve()
        data = read_image(image)
        pages.mkdir(parents=True, exist_ok=True)
        file = pages / f"{number}.{mime(data).rpartition('/')[2]}"
        file.write_bytes(data)
        return file

    async def _run(self, folder: Path, count: int, at_once: int, stop: asyncio.Event) -> bool:
        """Run the module to its end; False: `stop` came first.

        Raises:
            ModuleFailed, EngineGone: as of `answers`.
        """
        seconds = self._run_task.task.request_timeout * count
        async with self._wrapper.over_tcp() as (url, key):
            command = self._wrapper.command(
                ["python", "-m", self.module],
                [str(folder), f"{self._data.resolve()}:{self._data.resolve()}:ro"],
                {
                    "AUTH_TOKEN": key, "CONCURRENCY": str(at_once), "RUN_MODE": self._mode,
                    "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key,
                    "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1",
                    **past_proxies("127.0.0.1"),
                },
            )  # fmt: skip
            log = Log(self._wrapper.log, Mask([key]))
            output = log.open(f"starts python -m {self.module} for {count} samples")
            try:
                process = await self._start(command, folder, output)
                try:
                    ended = await _wait(process, stop, seconds)
                finally:
                    await _end(process)
            finally:
                await log.close()
        if ended and process.returncode == 0:
            return True
        if stop.is_set():
            return False
        await self._check_engine()
        if not ended:
            raise ModuleFailed(
                self.module,
                "module_timeout",
                f"did not end in {seconds:.0f} s, the run task's request_timeout for each of {count} samples",
            )
        raise self._failure(process.returncode or 0, log.tail())

    async def _start(
        self, command: Command, folder: Path, output: int
    ) -> asyncio.subprocess.Process:
        """Start the module in a session of its own; it ends with this process.

        Raises:
            ModuleFailed: it cannot be started.
        """
        try:
            return await asyncio.create_subprocess_exec(
                *command.argv,
                cwd=folder,
                env={**os.environ, **command.env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        except OSError as error:
            why = f"cannot be started: {command.argv[0]}: {error.strerror}"
            raise ModuleFailed(self.module, "module_failed", why) from error
        finally:
            os.close(output)

    async def _check_engine(self) -> None:
        """Check that the model is still loaded: without it, no module can ask.

        Raises:
            EngineGone: it is not.
        """
        state = (await self._wrapper.client.status())["state"]
        if state != "ready":
            raise EngineGone(f"the engine is {state} after module '{self.module}' failed")

    def _failure(self, code: int, tail: Sequence[str]) -> ModuleFailed:
        """Why the module ended with this exit code."""
        lines = [line.strip() for line in tail if line.strip()]
        last = secret.mask(lines[-1]) if lines else "it printed nothing"
        own = re.escape(self.module)
        missing = rf"No module named '?{own}\b|Error while finding module specification for '{own}'"
        if lines and re.search(missing, last) and not any("Traceback" in line for line in lines):
            return ModuleFailed(
                self.module,
                "module_not_found",
                f"is not in the model's environment: {last} (name its package in the ML task's "
                "`required_packages`)",
            )
        number = -code if code < 0 else code - 128
        if code < 0 or code == 137:
            name = signal.Signals(number).name
            why = ", perhaps for its memory" if number == signal.SIGKILL else ""
            return ModuleFailed(
                self.module, "module_killed", f"was ended by {name}{why}; its last line: {last}"
            )
        return ModuleFailed(self.module, "module_failed", f"ended with exit code {code}: {last}")

    def _read(self, folder: Path, asked: Sequence[_Asked]) -> dict[str, str]:
        """Sample → the module's answer.

        Raises:
            ModuleFailed: the file is missing, or is not as the contract says.
        """
        from hpcbench.tasks.alone import read_answers  # imports evaluation

        file, known = folder / ANSWERS, {one.sample_id for one in asked}
        try:
            if not file.is_file():
                raise ValueError(f"wrote no {ANSWERS}")
            if file.stat().st_size > MOST_BYTES:
                raise ValueError(f"wrote more than {MOST_BYTES // 2**30} GiB to {ANSWERS}")
            if last_bytes(file, 1) != b"\n":
                raise ValueError(f"did not write {ANSWERS} to its end: the last line has no end")
            named, listed = read_answers(file, rows=False, once=True)
        except ValueError as error:
            raise ModuleFailed(self.module, "module_answers", str(error)) from error
        except UserError as error:
            first = error.problems[0]
            place = f"{ANSWERS}:{first.line}" if first.line is not None else ANSWERS
            why = f"wrote a wrong {place}: {first.message}"
            raise ModuleFailed(self.module, "module_answers", why) from error
        if listed:
            why = f"wrote {ANSWERS} without a column `id`"
            raise ModuleFailed(self.module, "module_answers", why)
        if strange := [name for name in named if name not in known]:
            why = f"wrote an answer to '{strange[0]}', which it was not asked"
            raise ModuleFailed(self.module, "module_answers", why)
        if not named:
            raise ModuleFailed(self.module, "module_answers", f"wrote no answer to {ANSWERS}")
        return {name: one.text for name, one in named.items() if one.text is not None}


def _response(
    one: _Asked,
    text: str | None,
    times: Times,
    outcome: Literal["failed", "invalid"] = "failed",
    error: str = "the module wrote no answer to this sample",
) -> Response:
    """The answer to a sample; `tries` is 0, so that no figure of speed counts it as a request."""
    return Response(
        sample_id=one.sample_id,
        outcome=outcome if text is None else "ok",
        text=text,
        finish_reason=None,
        usage=None,
        times=times,
        tries=0,
        image_sha256=(),
        error=error if text is None else None,
        prompt=one.prompt,
    )


async def _wait(process: asyncio.subprocess.Process, stop: asyncio.Event, seconds: float) -> bool:
    """Whether the process ends before `stop` is set, and in so many seconds."""
    ending, stopping = asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({ending, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return ending.done()
    finally:
        for one in (ending, stopping):
            one.cancel()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program with all that it started: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE)
    await asyncio.to_thread(end_session, process.pid)
