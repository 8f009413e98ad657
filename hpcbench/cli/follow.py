"""Verbs that follow: events, logs."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from hpcbench.cli.output import print_json, say
from hpcbench.data.progress import size_text
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError, nearest
from hpcbench.experiment.event_log import Kind, Sort
from hpcbench.experiment.events import PATIENCE_SECONDS, Event, EventTail, has_ended
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.experiment.view.logs import lines_of, text_logs, text_tail
from hpcbench.experiment.view.workers import run_task_of, worker_runs
from hpcbench.files.tail import Tail
from hpcbench.registry.catalog import user_site
from hpcbench.sanitize import sanitize
from hpcbench.schema.names import names_in

PAUSE_SECONDS = 1.0
"""Shortest pause between two looks; a pause is at least as long as the last look."""

CURSOR_SECONDS = 5.0
"""Shortest time between two cursors among events."""

QUIET_SECONDS = 60.0
"""After this time without events, check whether a job still works."""

SLOW_SECONDS = 10.0
"""A look that takes longer is reported."""

LIST_SECONDS = 2.0
"""Shortest time between two looks for new logs."""

LINES, LINES_FIRST = 40, 10
"""Lines shown of a log; lines shown of each log before following it."""

COLOURS: Mapping[Sort, str] = {"warning": "31", "progress": "2", "resources": "2", "state": ""}
"""Colours of events on a terminal."""


# --- events -------------------------------------------------------------------------------------------


def events(arguments: argparse.Namespace) -> int:
    """`hpcbench events [EXPERIMENT]`."""
    kinds = _kinds(arguments.kind)
    experiment = find(home(user_site()), arguments.experiment)
    tail = EventTail(
        experiment,
        arguments.since or "",
        resources="resources" in kinds,
        # Without --follow there is no second look: unreadable files are reported now.
        patience=PATIENCE_SECONDS if arguments.follow else 0.0,
    )
    out = _Printer(kinds, as_json=arguments.json)
    if not arguments.follow:
        out.show(tail.poll())
        if tail.fault:
            raise EnvironmentFault(tail.fault, remedy="try again")
    else:
        for found in _until_ended(experiment, tail):
            out.show(found)
            out.show_cursor(tail)
    out.show_cursor(tail, last=True)
    return 0


def _kinds(asked: str | None) -> frozenset[str]:
    """Kinds and sorts of events to show; empty: all except readings of the monitor.

    Raises:
        UserError: a name is unknown.
    """
    names = frozenset(names_in(asked or ""))
    known = [*get_args(Kind), *get_args(Sort)]
    for name in sorted(names.difference(known)):
        near = nearest(name, known)
        remedy = f"did you mean '{near}'?" if near else f"known: {', '.join(sorted(set(known)))}"
        raise UserError(f"--kind: no events have the kind '{name}'", remedy=remedy)
    return names


def _until_ended(experiment: Experiment, tail: EventTail) -> Iterator[list[Event]]:
    """New events of each look, until the experiment has ended, with or without a record of its end."""
    quiet_since, fault, slow = time.monotonic(), None, False
    while True:
        start = time.monotonic()
        found = tail.poll()
        yield found
        if tail.ended:
            return
        now = time.monotonic()
        if tail.fault not in (None, fault):
            say(f"hpcbench: {tail.fault}; trying again")
        fault = tail.fault
        if now - start > SLOW_SECONDS and not slow:
            slow = True
            say(f"hpcbench: the experiment's folder is slow: reading it took {now - start:.0f} s")
        if found:
            quiet_since = now
        elif now - quiet_since > QUIET_SECONDS:
            quiet_since = now
            if word := over(experiment):
                yield tail.poll()
                say(f"{experiment.id} is {word}: see `hpcbench status {experiment.id}`")
                return
        time.sleep(max(PAUSE_SECONDS, now - start))


def over(experiment: Experiment) -> str | None:
    """State of an experiment that ended without a record of it: cancelled, lost; None: no end is known.

    Raises:
        EnvironmentFault: its directory is gone.
    """
    from hpcbench.status import ENDED, status

    if not experiment.path.is_dir():
        raise EnvironmentFault(
            f"{experiment.path} is gone", remedy="`hpcbench list` lists the others"
        )
    try:
        state = status(experiment).state
    except (HpcbenchError, OSError):
        return None
    return state if state in ENDED else None


class _Printer:
    """Prints events: one line each for people, or NDJSON for programs."""

    def __init__(self, kinds: frozenset[str], *, as_json: bool) -> None:
        self._kinds, self._as_json = kinds, as_json
        self._terminal = sys.stdout.isatty()
        self._advanced, self._cursor_at = False, time.monotonic()

    def show(self, found: Sequence[Event]) -> None:
        """Print the requested events."""
        for event in found:
            self._advanced = True
            if not self._kinds or self._kinds & {event.kind, event.sort}:
                print(self._line(event))
        sys.stdout.flush()

    def show_cursor(self, tail: EventTail, *, last: bool = False) -> None:
        """Print the position after the last event, for programs; from time to time, and at the end."""
        now = time.monotonic()
        if self._as_json and (last or (self._advanced and now - self._cursor_at > CURSOR_SECONDS)):
            self._advanced, self._cursor_at = False, now
            print(json.dumps({"cursor": tail.cursor}), flush=True)

    def _line(self, event: Event) -> str:
        if self._as_json:
            # Escaped on a terminal: text of engines may contain terminal commands.
            return json.dumps(event.to_json(), ensure_ascii=self._terminal, separators=(",", ":"))
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(event.time))
        line = f"{when}  {sanitize(_short(event.source)):<16}  {sanitize(words(event))}"
        colour = COLOURS[event.sort] if self._terminal else ""
        return f"\x1b[{colour}m{line}\x1b[0m" if colour else line


WORDS: Mapping[str, str] = {
    "round": "round {round} begins",
    "intent": "submitting {step}",
    "submitted": "submitted {step} as job {job}",
    "dropped": "{step} did not reach Slurm",
    "shrunk": "{step} has {workers} workers now",
    "refused": "Slurm accepts no more jobs: {message}",
    "handed": "all jobs are submitted",
    "throttle": "{step} may run {to} workers at once",
    "pause": "{by} pauses {run_tasks}: {reason}",
    "resume": "{by} resumes {run_tasks}: {reason}",
    "cancel": "{by} cancels {run_tasks}: {reason}",
    "stop": "{run_tasks} is stopped: {reason}",
    "fail": "{run_tasks} fails: {reason}",
    "enough": "{run_tasks} has enough answers: {reason}",
    "ended": "the experiment is {state}",
    "claimed": "claimed by {owner}",
    "done": "done, {answered} samples",
    "drained": "drained, {answered} samples done: {reason}",
    "released": "released: {reason}",
    "failed": "failed: {reason}{message}",
    "started": "worker {owner} started",
    "finished": "worker finished: no shard is left for it",
    "stopped": "worker stopped",
    "disk_full": "{message}",
    "draining": "draining after {signal}",
    "fenced": "{message}",
    "shard_claimed": "takes {shard}",
    "shard_done": "has done {shard}",
    "shard_failed": "{shard} failed: {message}",
    "model_loading": "loading {model}",
    "loading": "{message}",
    "model_ready": "{model} is ready after {seconds} s",
    "model_failed": "{model} cannot be loaded: {message}",
    "engine_died": "the engine of {model} died: {message}",
    "memory_returned": "the GPU released its memory after {seconds} s",
    "bad_node": "hpcbench avoids {node}: {message}",
    "poisonous": "{run_task}: {message}",
    "staged": "copied {source} to this node in {seconds} s",
    "staging_skipped": "did not copy {source}: {message}",
    "orphans_reaped": "removed processes and folders that another worker had left: {names}",
    "alarm": "{message}",
    "unreadable": "line {line} of {file} is damaged",
    "progress": "{shard}: {answered} samples done",
    "resources": "{phase}: {held} held by {processes} processes, {cpu} s of CPU so far",
    "monitor": "{run_task}: {memory}",
    "monitor_note": "{message}",
    "tool_note": "{message}",
    "concurrency": "{run_task}: `concurrency: auto` chose {at_once} requests at once",
    "route": "{run_task}: requests are {route}",
    "token": "{model}: the token is {state}; got so far: {granted}",
    "token_failed": "{model}: no new token: {message}",
    "limited": "{message}",
    "budget": "spent so far: {spent}",
    "client_health": "{run_task}: requests left {lag_p99_ms} ms late (p99), client bound: {client_bound}",
}
"""Kind of event → a sentence for people, filled with the event's data."""


def words(event: Event) -> str:
    """An event as a sentence."""
    pattern = WORDS.get(event.kind)
    if pattern is None:  # written by a later version
        said = ", ".join(f"{key} {_said(key, value)}" for key, value in event.data.items())
        return f"{event.kind}: {said}"
    known = {key: _said(key, value) for key, value in event.data.items()}
    return pattern.format_map(_Lenient(known)).rstrip(" :")


_BYTES = ("_peak", "_reserved", "_allocated", "weights", "activation", "graphs", "effective")
"""Endings of names of memory figures."""


class _Lenient(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "the experiment" if key == "run_tasks" else ""


def _said(key: str, value: Any) -> str:
    if key == "owner" and isinstance(value, Mapping):
        return f"{value.get('job')} on {value.get('node') or value.get('host')}"
    if key == "run_tasks" and not value:
        return "the experiment"
    if key == "held" or key.endswith(_BYTES):
        return size_text(value) if isinstance(value, int) else str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(name, one)}" for name, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(str(one) for one in value)
    return str(value)


def _short(source: str) -> str:
    """Short form of a source for people: a worker by group and job, a shard by its number."""
    kind, _, rest = source.partition("/")
    if kind in ("workers", "monitor"):
        return rest.removesuffix("-0")
    if kind == "shards":
        return rest.removesuffix(".1")
    return source


# --- logs ---------------------------------------------------------------------------------------------


def logs(arguments: argparse.Namespace) -> int:
    """`hpcbench logs [EXPERIMENT] [NAME]`."""
    pattern = _pattern(arguments.grep)
    if arguments.lines is not None and arguments.lines < 0:
        raise UserError(f"-n {arguments.lines} is negative", remedy="give 0 or more")
    experiment = find(home(user_site()), arguments.experiment)
    choice = _Choice(experiment, arguments.name, arguments.engine)
    try:
        files = choice.files()
        if arguments.name and not files:
            missing = f"no log of '{arguments.name}'"
            if not arguments.follow or has_ended(experiment):
                remedy = "name a run task, worker, node, job id or the beginning of a log's name; "
                remedy += f"`hpcbench logs {experiment.id}` lists the logs"
                raise UserError(missing, remedy=remedy)
            say(f"{missing} yet")
        if arguments.follow:
            _follow_logs(choice, pattern, arguments.lines)
            return 0
        if arguments.name or pattern:
            _show_logs(files, pattern, arguments.lines)
        elif arguments.json:
            print_json([{"path": str(path), "bytes": path.stat().st_size} for path in files])
        else:
            _list_logs(experiment, files)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        message = f"{error.filename}: {error.strerror or error}"
        raise EnvironmentFault(message, remedy="look at its permissions, then try again") from error
    return 0


def _pattern(written: str | None) -> re.Pattern[str] | None:
    if written is None:
        return None
    try:
        return re.compile(written)
    except re.error as error:
        at = f" at character {error.pos + 1}" if error.pos is not None else ""
        remedy = "give a Python regular expression; `\\` before a character makes it literal"
        message = f"--grep: '{written}' is not a regular expression: {error.msg}{at}"
        raise UserError(message, remedy=remedy) from error


class _Choice:
    """Selection of an experiment's logs.

    Args:
        experiment: the experiment.
        name: a run task, worker, node, job id, or the beginning of a log's name; none: all.
        engine: whether to take only logs of workers' wrappers and engines.
    """

    def __init__(self, experiment: Experiment, name: str | None, engine: bool) -> None:
        self.experiment = experiment
        self._name = Path(name).name if name else None
        self._engine = engine

    def files(self) -> list[Path]:
        """The present logs, by name."""
        files = text_logs(self.experiment, engine=self._engine)
        if self._name is None:
            return files
        if exact := [path for path in files if path.name == self._name]:
            return exact
        found = set(self._by_worker(files, self._name))
        if not re.fullmatch(
            r"[0-9]+(_[0-9]+)?", self._name
        ):  # 4711_1 is not the beginning of 4711_10
            found.update(path for path in files if path.name.startswith(self._name))
        return sorted(found)

    def short(self, path: Path) -> str:
        """A log's name as prefix of its lines."""
        return path.name.removesuffix(path.suffix).removesuffix("_log")

    def _by_worker(self, files: Sequence[Path], name: str) -> list[Path]:
        """Logs of the workers of a run task, node, or job."""
        owners = {name}
        for run in worker_runs(self.experiment):
            if name in (run.node, run.host) or name in map(run_task_of, run.events):
                owners.add(run.seat)
        tokens = "|".join(re.escape(owner) for owner in sorted(owners))
        # Only whole job ids: 47 does not match 4711, but it matches 47_3 as its array job.
        exact = re.compile(rf"(?:^|[._])(?:{tokens})(?:[._-]|$)")
        return [path for path in files if exact.search(path.name)]


def _list_logs(experiment: Experiment, files: Sequence[Path]) -> None:
    for path in files:
        end = "".join(sanitize(line)[:100] for line in lines_of(path, 1))
        print(f"{path.relative_to(experiment.path)}  {path.stat().st_size} B  {end}")


def _show_logs(files: Sequence[Path], pattern: re.Pattern[str] | None, lines: int | None) -> None:
    """Print the end of each log, or its matching lines; several logs each get a heading."""
    for path in files:
        if pattern is None:
            count = LINES if lines is None else lines
            shown: Iterable[str] = deque(lines_of(path, count), count)
        else:
            shown = deque((one for one in lines_of(path) if pattern.search(one)), lines)
        for number, line in enumerate(shown):
            if number == 0 and len(files) > 1:
                print(f"==> {path.name} <==")
            print(_printable(line))


def _follow_logs(choice: _Choice, pattern: re.Pattern[str] | None, lines: int | None) -> None:
    """Print new lines of the selected logs, also of later logs, until the experiment ends."""
    # Of logs that exist now only the end is shown; later logs are shown from their first line.
    count = LINES_FIRST if lines is None else lines
    now = list_at = quiet_since = time.monotonic()
    known = {path: text_tail(path, now, count) for path in choice.files()}
    last, fault = has_ended(choice.experiment), ""
    while True:
        if last or now >= list_at:
            try:
                known |= {
                    path: text_tail(path, now) for path in choice.files() if path not in known
                }
                last, fault = last or has_ended(choice.experiment), ""
            except OSError as error:
                if not fault:
                    say(f"hpcbench: {error}; trying again")
                fault = str(error)
            # Workers of a run task are found by reading all workers' files: so not too often.
            list_at = now + max(LIST_SECONDS, 20 * (time.monotonic() - now))
        for log in known.values():
            if last or log.due <= now:
                found = _new_lines(log)
                log.looked(now, bool(found))
                quiet_since = now if found else quiet_since
                for line in found:
                    if pattern is None or pattern.search(line):
                        print(f"{choice.short(log.path)} | {_printable(line)}")
        sys.stdout.flush()
        if last:
            return
        if now - quiet_since > QUIET_SECONDS:
            quiet_since = now
            last = over(choice.experiment) is not None
        time.sleep(0 if last else PAUSE_SECONDS / 2)
        now = time.monotonic()


def _new_lines(log: Tail) -> list[str]:
    """New complete lines."""
    found: list[str] = []
    try:
        while block := log.block():
            for line in block.split(b"\n")[:-1]:
                log.take(line)
                found.append(line.decode(errors="replace"))
    except OSError:
        pass  # gone, or not readable for now: the next look tries again
    return found


def _printable(line: str) -> str:
    """A log's line: unchanged for programs, sanitized on a terminal."""
    return sanitize(line) if sys.stdout.isatty() else line
