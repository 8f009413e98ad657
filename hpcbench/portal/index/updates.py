"""Writes entries as rows; unchanged rows are not written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Table, delete, select

from hpcbench.portal.index import Account, Entry
from hpcbench.portal.index.experiment_scores import by_dataset
from hpcbench.portal.index.schema import (
    EXPERIMENTS,
    FILES,
    KNOWN,
    MEMBERS,
    RUN_TASKS,
    SCORES,
    TERMS,
    insert_new,
)
from hpcbench.portal.index.text_keys import clean, folded, heads
from hpcbench.portal.models.experiments import RunTaskRow

ACCOUNT: TypeAdapter[Account] = TypeAdapter(Account)

AT_ONCE = 500
"""Most values in one statement."""


@dataclass(frozen=True)
class _Wanted:
    """An entry as rows."""

    experiment: dict[str, Any]
    run_tasks: dict[str, dict[str, Any]]
    members: set[tuple[str, str]]
    scores: list[dict[str, Any]]
    files: list[dict[str, Any]]


def put(connection: Connection, version: int, *, home: str, entries: Iterable[Entry]) -> bool:
    """Write entries; returns whether any of them had changed."""
    changed = False
    for entry in entries:
        changed |= _put(connection, home, _wanted(home, entry, version))
    return changed


def remove(connection: Connection, _: int, *, home: str, experiments: Sequence[str]) -> bool:
    """Remove experiments; returns whether any of them existed."""
    gone = 0
    for begin in range(0, len(experiments), AT_ONCE):
        some = experiments[begin : begin + AT_ONCE]
        for table in (RUN_TASKS, MEMBERS, SCORES, FILES, KNOWN):
            connection.execute(
                delete(table).where(table.c.home == home, table.c.experiment.in_(some))
            )
        own = EXPERIMENTS.c
        gone += connection.execute(
            delete(EXPERIMENTS).where(own.home == home, own.id.in_(some))
        ).rowcount
    return bool(gone)


def keep(
    connection: Connection, _: int, *, home: str, experiment: str, stamp: str, body: str
) -> bool:
    """Write the kept facts of an experiment."""
    own = KNOWN.c
    connection.execute(delete(KNOWN).where(own.home == home, own.experiment == experiment))
    connection.execute(
        KNOWN.insert().values(home=home, experiment=experiment, stamp=stamp, body=clean(body))
    )
    return True


def _put(connection: Connection, home: str, wanted: _Wanted) -> bool:
    row = wanted.experiment
    own = EXPERIMENTS.c
    here = (own.home == home) & (own.id == row["id"])
    before = connection.execute(select(own.body, own.account, own.stamp).where(here)).first()
    moved = _put_run_tasks(connection, home, row["id"], wanted.run_tasks)
    now = (row["body"], row["account"], row["stamp"])
    of = home, row["id"]
    rescored = _put_rows(connection, SCORES, *of, ("dataset", "metric"), wanted.scores)
    rescored |= _put_rows(connection, FILES, *of, ("name",), wanted.files)
    if before is not None and not moved and not rescored and tuple(before) == now:
        return False
    if before is None:
        connection.execute(EXPERIMENTS.insert().values(**row))
    else:
        connection.execute(EXPERIMENTS.update().where(here).values(**row))
    _put_members(connection, home, row["id"], wanted.members)
    if before is None or moved:
        _put_terms(connection, home, wanted, moved)
    return True


def _put_run_tasks(
    connection: Connection, home: str, experiment: str, wanted: Mapping[str, dict[str, Any]]
) -> set[str]:
    """Write changed run tasks and delete removed ones; returns the names of both."""
    own = RUN_TASKS.c
    here = (own.home == home) & (own.experiment == experiment)
    before = {
        name: body for name, body in connection.execute(select(own.name, own.body).where(here))
    }
    changed = {name for name, row in wanted.items() if before.get(name) != row["body"]}
    stale = sorted((before.keys() - wanted.keys()) | (changed & before.keys()))
    for begin in range(0, len(stale), AT_ONCE):
        some = stale[begin : begin + AT_ONCE]
        connection.execute(delete(RUN_TASKS).where(here, own.name.in_(some)))
    if changed:
        connection.execute(RUN_TASKS.insert(), [wanted[name] for name in sorted(changed)])
    return changed | (before.keys() - wanted.keys())


def _put_rows(
    connection: Connection,
    table: Table,
    home: str,
    experiment: str,
    keys: Sequence[str],
    wanted: Sequence[dict[str, Any]],
) -> bool:
    """Replace all rows of an experiment where any differs; returns whether any did.

    Args:
        connection: the database.
        table: a table with the columns `home`, `experiment` and `body`.
        home: the home.
        experiment: the experiment.
        keys: columns that identify a row of the experiment.
        wanted: the rows.
    """
    own, known = table.c, (*keys, "body")
    here = (own.home == home) & (own.experiment == experiment)
    before = connection.execute(select(*(own[name] for name in known)).where(here))
    if {tuple(row) for row in before} == {tuple(row[name] for name in known) for row in wanted}:
        return False
    connection.execute(delete(table).where(here))
    if wanted:
        connection.execute(table.insert(), wanted)
    return True


def _put_members(
    connection: Connection, home: str, experiment: str, wanted: set[tuple[str, str]]
) -> None:
    own = MEMBERS.c
    here = (own.home == home) & (own.experiment == experiment)
    before = {
        (kind, value) for kind, value in connection.execute(select(own.kind, own.value).where(here))
    }
    for kind, value in sorted(before - wanted):
        connection.execute(delete(MEMBERS).where(here, own.kind == kind, own.value == value))
    if new := sorted(wanted - before):
        rows = [
            {"home": home, "kind": kind, "value": value, "experiment": experiment}
            for kind, value in new
        ]
        connection.execute(MEMBERS.insert(), rows)


def _put_terms(
    connection: Connection, home: str, wanted: _Wanted, run_tasks: Iterable[str]
) -> None:
    row = wanted.experiment
    names = {("experiment", row["id"]), ("plan", row["plan"]), *wanted.members}
    names |= {("run_task", name) for name in run_tasks if name in wanted.run_tasks}
    rows = [
        {"home": home, "word": word, "kind": kind, "name": name}
        for kind, name in sorted(names)
        for word in heads(name)
    ]
    if rows:
        connection.execute(insert_new(connection, TERMS), rows)


def _wanted(home: str, entry: Entry, version: int) -> _Wanted:
    row = entry.row
    said = (row.id, row.plan, row.owner, *row.models, *row.datasets, *row.baselines)
    experiment = {
        "home": home, "id": row.id, "version": version, "stamp": entry.stamp, "plan": row.plan,
        "state": row.state, "owner": row.owner, "verdict": row.verdict,
        "metric": row.score.metric if row.score else None,
        "created": row.created, "updated": row.updated, "progress": _share(row.answered, row.samples),
        "rate": row.rate, "score": row.score.value if row.score else None, "gpu_hours": row.gpu_hours,
        "run_tasks": row.run_tasks, "samples": row.samples, "answered": row.answered,
        "failures": row.failures, "baselines": len(row.baselines), "words": folded("\n".join(said)),
        "body": row.model_copy(update={"trend": (), "scores": ()}).model_dump_json(),
        "account": json.dumps(ACCOUNT.dump_python(entry.account, mode="json"), sort_keys=True),
    }  # fmt: skip
    members = {("model", one) for one in row.models} | {("dataset", one) for one in row.datasets}
    run_tasks = {one.name: _run_task(home, place, one) for place, one in enumerate(entry.run_tasks)}
    scores = [
        {
            "home": home, "experiment": row.id, "dataset": one.dataset, "metric": one.metric,
            "place": place, "value": one.value, "higher_is_better": int(one.higher_is_better),
            "body": one.model_dump_json(),
        }
        for place, one in by_dataset(entry.run_tasks)
    ]  # fmt: skip
    files = [
        {"home": home, "experiment": row.id, "name": name, "body": places.to_json().decode()}
        for name, places in entry.files.items()
    ]
    return _Wanted(experiment, run_tasks, members, scores, files)


def _run_task(home: str, place: int, row: RunTaskRow) -> dict[str, Any]:
    said = (row.name, row.experiment, row.model, row.dataset, row.prompt, row.ml_task)
    return {
        "home": home, "experiment": row.experiment, "name": row.name, "place": place, "ml_task": row.ml_task,
        "model": row.model, "dataset": row.dataset, "prompt": row.prompt, "state": row.state,
        "samples": row.samples, "answered": row.answered, "progress": _share(row.answered, row.samples),
        "rate": row.rate, "coverage": row.coverage, "invalid": row.invalid,
        "score": row.scores[0].value if row.scores else None,
        "latency_p50": row.latency_p50, "latency_p95": row.latency_p95,
        "tokens_per_second": row.tokens_per_second, "peak_memory_gb": row.peak_memory_gb,
        "words": folded("\n".join(said)), "body": row.model_dump_json(),
    }  # fmt: skip


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
