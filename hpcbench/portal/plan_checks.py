"""Check of a text, saved or not: `main` checks in a process of its own; `Checker` calls it.

The check has its own process: definitions name plugins, which are foreign code, and matrices, which may grow
without limit. Its time and memory are limited, it starts from a clean state each time, and it cannot crash
the portal. One such process waits with the modules of a check imported, so that a check has no startup time.
Modules of an estimate are imported for an estimate alone: most checks have none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench import secret
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.portal.faults import PortalFault

if TYPE_CHECKING:
    from hpcbench.schema.plan import ResolvedPlan
from hpcbench.subprocesses import kill_session

CHECK_SECONDS = 20
"""Most seconds of a check."""

ESTIMATE_SECONDS = 50
"""Most seconds of a check with an estimate; results without the estimate are given after a timeout, too."""

IDLE_SECONDS = 120
"""A process without work ends after so many seconds."""

AT_ONCE = 2
"""Checks at the same time."""

TURN_SECONDS = 30
"""Seconds that a check waits for its turn; with the check, it stays below a route's time limit."""

MEMORY = 3 << 30
"""Bytes of data that a check may hold."""

SHOWN = 2_000
"""Most run tasks and problems of an answer."""

_TELLING = re.compile(r"token|secret|passw|key", re.IGNORECASE)

# With `-m`, Python would import modules from the working directory.
_START = "import sys; sys.path[:1] = []; from hpcbench.portal.plan_checks import main; main()"


class Checker:
    """Checks texts in processes of their own.

    Args:
        folder: the working directory of a check: its `./registries` counts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._spare: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a check: `problems`, `run_tasks`, `total`, perhaps `estimate` or `estimate_fault`.

        Raises:
            PortalFault: it takes too long or too much memory, or other checks are running (503).
        """
        if not self._free.acquire(timeout=TURN_SECONDS):
            raise PortalFault(503, "busy", "other checks are running", "try again in a moment")
        try:
            seconds = ESTIMATE_SECONDS if request.get("estimate") else CHECK_SECONDS
            return self._asked(json.dumps(request).encode(), seconds)
        finally:
            self._free.release()

    def close(self) -> None:
        """End the waiting process."""
        with self._lock:
            if self._spare is not None:
                kill_session(self._spare)
            self._spare = None

    def _asked(self, request: bytes, seconds: float) -> dict[str, Any]:
        process = self._taken()
        late = False
        try:
            out, said = process.communicate(request, timeout=seconds)
        except subprocess.TimeoutExpired as expired:
            out, said, late = expired.output or b"", b"", True
        except OSError:  # the spare process ended at this moment
            out, said = b"", b""
        finally:
            kill_session(process)
        self._prepare()
        answer: dict[str, Any] = {}
        for line in out.splitlines():
            with contextlib.suppress(ValueError):  # a truncated line
                answer |= json.loads(line)
        if "problems" not in answer:
            if late:
                what = f"the check took longer than {CHECK_SECONDS} s"
                raise PortalFault(
                    503, "too_long", what, "use a smaller matrix, or run `hpcbench validate`"
                )
            last = (said.decode("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
            what = f"the check failed: {secret.mask(last)[:300]}"
            raise PortalFault(422, "too_much", what, "run `hpcbench validate`")
        if late:
            answer["estimate_fault"] = f"the estimate took longer than {ESTIMATE_SECONDS} s"
        elif json.loads(request).get("estimate") and not answer["problems"]:
            answer.setdefault("estimate", None)
            if answer["estimate"] is None:
                answer.setdefault(
                    "estimate_fault", "the estimate failed: run `hpcbench submit PLAN --estimate`"
                )
        return answer

    def _taken(self) -> subprocess.Popen[bytes]:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and spare.poll() is None:
            return spare
        return self._started()

    def _prepare(self) -> None:
        """Start a spare process: after one check, another one is likely soon."""
        with self._lock:
            if self._spare is None or self._spare.poll() is not None:
                self._spare = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._folder,
            start_new_session=True,
        )


# --- in the process ---------------------------------------------------------------------------------------


def main() -> None:
    """Read one request from standard input, print the results as lines of JSON."""
    _limit()
    from hpcbench.registry import resolve  # noqa: F401 - imported before it is needed

    if not select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
        return
    text = sys.stdin.buffer.read()
    if not text:
        return
    # Plugins may print; only lines of this file are the answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for answer in found(json.loads(text)):
        print(json.dumps(answer, ensure_ascii=True), file=answers, flush=True)


def found(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Results of a check, part by part.

    Args:
        request: `kind` as registries name it, `path` of the text's file, `text`, `estimate`;
            `only_read`: check only that the text is valid YAML.
    """
    from hpcbench.registry.catalog import Catalog, run_mode
    from hpcbench.registry.resolve import DefinitionFindings, look

    path, kind = Path(request["path"]), request["kind"]
    if request.get("only_read"):
        yield {"problems": [one._asdict() for one in _unreadable(path, request["text"])]}
        return
    base = path.with_name(path.name.replace(".dev.yaml", ".yaml"))
    try:
        # An overlay counts in dev only.
        mode = run_mode() if base == path else "dev"
        catalog = Catalog(mode=mode, texts={path: request["text"]})
        seen = look(kind, base, catalog)
    except HpcbenchError as error:
        seen = DefinitionFindings(tuple(getattr(error, "problems", (Problem(str(error)),))))
    yield {
        "problems": [one._asdict() for one in seen.problems[:SHOWN]],
        "warnings": [one._asdict() for one in _warnings(path, request["text"])],
        "run_tasks": list(_expanded(seen)),
        "total": len(seen.run_tasks),
    }
    if request.get("estimate") and seen.resolved is not None:
        try:
            yield {"estimate": _estimate(seen.resolved, path)}
        except HpcbenchError as error:
            yield {"estimate_fault": secret.mask(str(error))[:2000]}


def _expanded(seen: Any) -> Iterator[dict[str, Any]]:
    known = {one.name: one for one in seen.resolved.run_tasks} if seen.resolved else {}
    for task in seen.run_tasks[:SHOWN]:
        whole = known.get(task.name)
        model = task.model if isinstance(task.model, str) else task.model.name
        yield {
            "name": task.name,
            "ml_task": task.ml_task,
            "model": whole.model.name if whole else model,
            "dataset": f"{task.dataset}/{task.split}" if task.split else task.dataset,
            "prompt": whole.prompt.name if whole else task.prompt or "",
            "gpus": (whole.model.gpus or 0) if whole else 0,
            "samples": None,
        }


def _estimate(resolved: ResolvedPlan, path: Path) -> dict[str, Any]:
    """Cost of a plan; data that is not here yet is estimated from its definition."""
    from hpcbench.submit.estimate_text import outlook, words
    from hpcbench.submit.preview import preview_of

    preview = preview_of(resolved, (), path)
    ahead = outlook(preview)
    what = ahead.estimate
    known = {name: count for name, count in ahead.forecast.samples.items() if count is not None}
    misfits = [f"! {one.problem.message}" for one in preview.findings]
    holds = any(group.gpus for group in what.groups)
    return {
        "gpu_hours": what.gpu_hours.value if holds else None,
        "hours": what.wall_seconds.value / 3600,
        "bytes": int(what.disk.responses),
        "samples": sum(known.values()),
        "by_run_task": known,
        "measured": what.measured,
        "lines": [*words(preview, ahead), *misfits],
    }


def _warnings(path: Path, text: str) -> Iterator[Problem]:
    """Secrets in plain text: the registry accepts them, but a file should not contain them."""
    from hpcbench.registry.source import parse

    if not _TELLING.search(text):
        return
    try:
        source = parse(path, text)
    except HpcbenchError:
        return
    for loc, value in _leaves(source.data, ()):
        name = str(loc[-1])
        if secret.written_out(name, value):
            remedy = f"write ${{env:{name.upper()}}} or ${{file:PATH}}"
            yield source.problem(loc, f"'{name}' looks like a secret in plain text", remedy)


def _unreadable(path: Path, text: str) -> tuple[Problem, ...]:
    from hpcbench.registry.source import parse

    try:
        parse(path, text)
    except UserError as error:
        return error.problems
    return ()


def _leaves(data: Any, loc: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    entries = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in entries:
        if isinstance(value, (dict, list)):
            yield from _leaves(value, (*loc, key))
        elif isinstance(value, str) and isinstance(key, str):
            yield (*loc, key), value


def _limit() -> None:
    """Yield to other processes of this login node, and limit CPU time and memory."""
    with contextlib.suppress(OSError):
        os.nice(5)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for what, most in (
        (resource.RLIMIT_CPU, ESTIMATE_SECONDS + CHECK_SECONDS),
        (resource.RLIMIT_DATA, MEMORY),
    ):
        hard = resource.getrlimit(what)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (soft, hard))
