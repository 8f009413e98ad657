"""Hits for the palette: names that begin with the typed text, or have words that begin with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from sqlalchemy import Connection, func, select

from hpcbench.portal.index.schema import (
    EXPERIMENTS,
    MEMBERS,
    RUN_TASKS,
    TERMS,
)
from hpcbench.portal.index.text_keys import asked, heads
from hpcbench.portal.models.experiments import Hit

CANDIDATES = 400
"""Most names that are examined for each kind."""

KINDS = ("experiment", "plan", "model", "dataset", "run_task")
"""Kinds of hits; of equally good hits, an earlier kind comes first."""

Find = Callable[[Connection, str, Sequence[str]], Iterator[Hit]]

_LAST = "\U0010ffff"


def search(connection: Connection, home: str, text: str, limit: int) -> tuple[Hit, ...]:
    """The best hits first: equal names, then names that begin with the text, then words; short before long.

    A run task gives one hit for each experiment that has it, the newest first. The experiment's id has to
    contain the words that the run task's name lacks, so users can reach each of many run tasks of one name.
    """
    words = asked(text)
    if not words:
        return ()
    found = [
        (_rank(name, words), kind, name)
        for kind in KINDS
        for name in _names(connection, home, kind, words)
    ]
    ordered = sorted(found, key=lambda one: (one[0], KINDS.index(one[1]), one[2]))
    # Names outlive their experiments: some of the chosen names may have no experiment any more.
    best = [(kind, name) for _, kind, name in ordered[: 2 * limit]]
    # Hits are taken in turns, one of each name: a few of each name are mostly enough.
    for each in sorted({-(-limit // max(1, len(best))), limit}):
        known: dict[tuple[str, str], list[Hit]] = {}
        for kind in KINDS:
            names = [name for own, name in best if own == kind]
            if names:
                for hit in _hits(connection, home, kind, names, words, each):
                    known.setdefault((kind, hit.name), []).append(hit)
        if sum(map(len, known.values())) >= limit:
            break
    return _chosen([known[one] for one in best if one in known], limit)


def _chosen(groups: Sequence[Sequence[Hit]], limit: int) -> tuple[Hit, ...]:
    """Hits in the order of their groups; above the limit, some hits of each group, not all of the first."""
    turns = sorted((turn, at) for at, group in enumerate(groups) for turn in range(len(group)))
    return tuple(groups[at][turn] for at, turn in sorted((at, turn) for turn, at in turns[:limit]))


def _names(connection: Connection, home: str, kind: str, words: Sequence[str]) -> list[str]:
    if kind != "run_task":
        found = _candidates(connection, home, kind, max(words, key=len))
        return [name for name in found if not _left(name, words)]
    each = [_candidates(connection, home, kind, word) for word in words]
    return list(dict.fromkeys(name for names in each for name in names))


def _left(name: str, words: Sequence[str]) -> tuple[str, ...]:
    """Words that are no prefix of a word of the name."""
    begins = heads(name)
    return tuple(word for word in words if not any(head.startswith(word) for head in begins))


def _candidates(connection: Connection, home: str, kind: str, word: str) -> list[str]:
    own = TERMS.c
    statement = (
        select(own.name)
        .where(own.home == home, own.kind == kind, own.word >= word, own.word < word + _LAST)
        # Newest first: ids of experiments begin with the date.
        .order_by(own.word.desc() if kind == "experiment" else own.word, own.name)
        .limit(CANDIDATES)
    )
    return list(dict.fromkeys(connection.execute(statement).scalars()))


def _rank(name: str, words: Sequence[str]) -> tuple[int, int]:
    left = _left(name, words)
    whole, text = heads(name)[0], " ".join(word for word in words if word not in left)
    place = 0 if whole == text else 1 if whole.startswith(words[0]) else 2
    return place, len(name)


def _hits(
    connection: Connection,
    home: str,
    kind: str,
    names: Sequence[str],
    words: Sequence[str],
    each: int,
) -> Iterator[Hit]:
    if kind != "run_task":
        yield from _HITS[kind](connection, home, names)
        return
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        alike.setdefault(_left(name, words), []).append(name)
    for left, some in alike.items():
        yield from _run_tasks(connection, home, some, left, each)


def _run_tasks(
    connection: Connection, home: str, names: Sequence[str], left: Sequence[str], each: int
) -> Iterator[Hit]:
    """Run tasks of these names in experiments whose ids contain the words of `left`, newest first.

    Args:
        connection: the index.
        home: the home in it.
        names: names of run tasks.
        left: words that the experiments' ids contain.
        each: most hits of a name.
    """
    own = RUN_TASKS.c
    within = (func.lower(own.experiment).contains(word, autoescape=True) for word in left)
    where = (own.home == home, own.name.in_(names), *within)
    if each == 1:  # without numbering the rows of each name
        newest = func.max(own.experiment).label("experiment")
        chosen = select(own.name, newest).where(*where).group_by(own.name).subquery()
    else:
        turn = func.row_number().over(partition_by=own.name, order_by=own.experiment.desc())
        ranked = select(own.name, own.experiment, turn.label("turn")).where(*where).subquery()
        chosen = select(ranked).where(ranked.c.turn <= each).subquery()
    # All rows of these names are searched by an index; only the chosen ones are read.
    same = (own.home == home, own.experiment == chosen.c.experiment, own.name == chosen.c.name)
    query = select(own.name, own.experiment, own.model, own.dataset).where(*same)
    query = query.order_by(own.name, own.experiment.desc())
    for name, experiment, model, dataset in connection.execute(query):
        if not _left(experiment, left):
            detail = f"{model} on {dataset}"
            yield Hit(kind="run_task", name=name, experiment=experiment, detail=detail)


def _experiments(connection: Connection, home: str, names: Sequence[str]) -> Iterator[Hit]:
    own = EXPERIMENTS.c
    query = select(own.id, own.plan, own.state).where(own.home == home, own.id.in_(names))
    for name, plan, state in connection.execute(query):
        yield Hit(kind="experiment", name=name, experiment=name, detail=f"{plan}, {state}")


def _plans(connection: Connection, home: str, names: Sequence[str]) -> Iterator[Hit]:
    own = EXPERIMENTS.c
    where = (own.home == home) & own.plan.in_(names)
    counted = select(own.plan, func.count()).where(where).group_by(own.plan)
    for name, count in connection.execute(counted):
        yield Hit(kind="plan", name=name, count=count)


def _members(kind: Literal["model", "dataset"]) -> Find:
    def find(connection: Connection, home: str, names: Sequence[str]) -> Iterator[Hit]:
        own = MEMBERS.c
        where = (own.home == home) & (own.kind == kind) & own.value.in_(names)
        counted = select(own.value, func.count()).where(where).group_by(own.value)
        for name, count in connection.execute(counted):
            yield Hit(kind=kind, name=name, count=count)

    return find


_HITS: dict[str, Find] = {
    "experiment": _experiments,
    "plan": _plans,
    "model": _members("model"),
    "dataset": _members("dataset"),
}
"""Kind → function from names to hits; run tasks have a function of their own."""
