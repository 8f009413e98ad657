"""Sending of an ended experiment: by its last job, in a separate process; else by later commands, once.

`owe` notes the debt beside the experiment before its end is written; `pay` sends, and notes that all is sent
or why not. A job that was killed, and a node without a way to the server, leave the debt to the next command
on the login node. Notes are those of trackers, `tracked/database-KEY.jsonl`.

python -m hpcbench.database.later EXPERIMENT        send it; a line a transaction on standard output
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.database import need
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.access import use_umask
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_lines
from hpcbench.installed import this_python
from hpcbench.registry.database_address import address_of
from hpcbench.schema.outputs import Database
from hpcbench.subprocesses import run
from hpcbench.tracking.sent import notes_file, notes_on

WAITS = (60.0, 300.0, 1800.0, 7200.0)
"""Seconds before an automatic retry: after the first failure, the second …; then always the last."""

MOST = 8
"""Most automatic tries without any progress; then only `hpcbench database sync` tries again."""

LIMIT = 300.0
"""Longest time that the end of an experiment takes for its database, seconds."""


def database_of(experiment: Experiment) -> Database | None:
    """The database of an experiment: its plan's, else that of its site profile at submit."""
    return experiment.resolved.plan.database or experiment.resolved.site.database


@dataclass(frozen=True, slots=True)
class Debt:
    """Experiments to send to one database."""

    stamp: str
    """Which end of the experiment it is."""
    failures: int = 0
    """Tries since the last progress."""
    at: float = 0.0
    """Time of the last note, seconds since the epoch."""
    why: str | None = None
    """Why the last try failed."""
    rest: float = 0.0
    """Pause after the last note, seconds."""

    def due(self, now: float) -> bool:
        """Whether to try now, without a request."""
        return self.failures < MOST and now >= self.at + self.rest


def owe(experiment: Experiment) -> None:
    """Note that the experiment has to be sent, as it is now; nothing without a database.

    Raises:
        OSError: the note cannot be written.
        RunFailed: another process keeps the notes.
    """
    database = database_of(experiment)
    if database is not None:
        with notes_on(_notes(experiment, database), patience=5.0) as notes:
            notes.put("owed", "", str(time.time_ns()))


def debts(experiment: Experiment) -> Iterator[Debt]:
    """Experiments that are not sent yet; reads no file of an experiment without a database.

    Raises:
        OSError: a note cannot be read.
    """
    for path in sorted(experiment.tracked_dir.glob("database-*.jsonl")):
        found = _debt(path)
        if found is not None:
            yield found


def _debt(path: Path) -> Debt | None:
    debt: Debt | None = None
    for line in read_lines(path):
        what, value, at = line.get("what"), str(line.get("value")), float(line.get("time", 0.0))
        if what == "owed":
            debt = Debt(value, at=at)
        elif debt is not None and what == "sent" and value == debt.stamp:
            debt = None
        elif debt is not None and what == "partly":
            debt = Debt(debt.stamp, 0, at, rest=WAITS[0])
        elif debt is not None and what == "failed":
            rest = WAITS[min(debt.failures, len(WAITS) - 1)]
            debt = Debt(debt.stamp, debt.failures + 1, at, value, rest)
    return debt


def pay(experiment: Experiment, limit: float) -> str | None:
    """Send what is owed, in a process of its own that is ended after `limit` seconds. Never raises.

    Returns:
        Why not all was sent, in a line without secrets; None: all was sent, or nothing was due.
    """
    try:
        database = database_of(experiment)
        if database is None:
            return None
        path = _notes(experiment, database)
        debt = _debt(path)
        if debt is None or not debt.due(time.time()):
            return None
        if (lacking := _elsewhere(database)) is not None:
            return lacking
        use_umask(experiment.resolved.site)
        with notes_on(path) as notes:
            sent, why = _in_a_process(experiment, limit)
            if why is None:
                notes.put("sent", "", debt.stamp)
                return None
            if sent:
                notes.put("partly", debt.stamp, str(time.time_ns()))
            else:
                notes.put("failed", f"{debt.stamp}.{debt.failures}", why)
            return why
    except PermissionError:
        return None  # another user's experiment
    except Exception as error:  # noqa: BLE001 - the experiment has ended all the same
        return secret.mask(" ".join(f"{type(error).__name__}: {error}".split()))


def settled(experiment: Experiment, database: Database) -> contextlib.AbstractContextManager[Any]:
    """Around a sync by request: what is owed when it begins is paid when it has ended well."""
    return _settled(_notes(experiment, database))


@contextlib.contextmanager
def _settled(path: Path) -> Iterator[None]:
    debt = _debt(path)
    yield
    if debt is not None:
        with contextlib.suppress(PermissionError), notes_on(path, patience=5.0) as notes:
            notes.put("sent", "", debt.stamp)


def _notes(experiment: Experiment, database: Database) -> Path:
    return notes_file(experiment, "database", database.model_dump(mode="json"))


def _elsewhere(database: Database) -> str | None:
    """Why this machine cannot have the database: SQLite's file is on the machine of `database init`."""
    if database.type != "sqlite":
        return None
    path = address_of(database).path
    if path is None or path.exists():
        return None
    return f"no database {path} on this machine; `hpcbench database init` makes it"


def _in_a_process(experiment: Experiment, limit: float) -> tuple[int, str | None]:
    """Transactions that were sent, and why not all of them."""
    argv = [*this_python(), "-m", "hpcbench.database.later", str(experiment.path)]
    ended = run(argv, limit, alone=True)
    said = [json.loads(line) for line in ended.out.split(b"\n")[:-1]]
    sent = sum("sent" in one for one in said)
    if said and "done" in said[-1]:
        return sent, None
    if said and "fault" in said[-1]:
        return sent, str(said[-1]["fault"])
    if ended.late:
        return (
            sent,
            f"the database has not taken all in {limit:g} s; a later command sends the rest",
        )
    return sent, secret.mask(ended.why)


def main(path: str) -> None:
    """Send one experiment, and say so on standard output."""

    def say(**message: Any) -> None:
        print(json.dumps(message), flush=True)  # noqa: T201 - messages for the parent

    experiment = Experiment(Path(path))
    try:
        need()
        from hpcbench.database.sync import sync  # slow import: SQLAlchemy

        database = database_of(experiment)
        assert database is not None
        experiment.use_packages()
        asyncio.run(sync(experiment, address_of(database), lambda synced: say(sent=synced.rows)))
    except HpcbenchError as error:
        say(fault=secret.mask(" ".join(str(error).split())))
    except Exception as error:  # noqa: BLE001 - any error is reported in a line
        say(fault=secret.mask(" ".join(f"{type(error).__name__}: {error}".split())[:400]))
    else:
        say(done=True)


if __name__ == "__main__":
    main(sys.argv[1])
