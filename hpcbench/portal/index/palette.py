"""Hits for the palette: names that begin with what was typed, or have words that do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from sqlalchemy import Connection, func, select

from hpcbench.portal.index.tables import EXPERIMENTS, MEMBERS, RUN_TASKS, TERMS
from hpcbench.portal.index.words import asked, heads
from hpcbench.portal.models.experiments import Hit

CANDIDATES = 400
"""Names that are looked at for each kind."""

KINDS = ("experiment", "plan", "model", "dataset", "run_task")
"""Of hits that are as good, those of an earlier kind come first."""

Find = Callable[[Connection, str, Sequence[str]], Iterator[Hit]]

_LAST = "\U0010ffff"


def search(connection: Connection, home: str, text: str, limit: int) -> tuple[Hit, ...]:
    """The best hits first: the same name, then names that begin so, then words that do; short before long."""
    words = asked(text)
    if not words:
        return ()
    longest = max(words, key=len)
    found = [
        (_rank(name, words), kind, name)
        for kind in KINDS
        for name in _candidates(connection, home, kind, longest)
        if _fits(name, words)
    ]
    ordered = sorted(found, key=lambda one: (one[0], KINDS.index(one[1]), one[2]))
    # Names outlive their experiments: some of those that are taken may lead nowhere any more.
    best = [(kind, name) for _, kind, name in ordered[: 2 * limit]]
    known: dict[tuple[str, str], Hit] = {}
    for kind in KINDS:
        names = [name for own, name in best if own == kind]
        if names:
            known |= {(kind, hit.name): hit for hit in _HITS[kind](connection, home, names)}
    return tuple(known[one] for one in best if one in known)[:limit]


def _candidates(connection: Connection, home: str, kind: str, word: str) -> list[str]:
    own = TERMS.c
    statement = (
        select(own.name)
        .where(own.home == home, own.kind == kind, own.word >= word, own.word < word + _LAST)
        # Newest first: ids of experiments begin with their day.
        .order_by(own.word.desc() if kind == "experiment" else own.word, own.name)
        .limit(CANDIDATES)
    )
    return list(dict.fromkeys(connection.execute(statement).scalars()))


def _fits(name: str, words: Sequence[str]) -> bool:
    begins = heads(name)
    return all(any(head.startswith(word) for head in begins) for word in words)


def _rank(name: str, words: Sequence[str]) -> tuple[int, int]:
    whole, text = heads(name)[0], " ".join(words)
    place = 0 if whole == text else 1 if whole.startswith(words[0]) else 2
    return place, len(name)


def _run_tasks(connection: Connection, home: str, names: Sequence[str]) -> Iterator[Hit]:
    own = RUN_TASKS.c
    here = (own.home == home) & own.name.in_(names)
    newest = select(own.name, func.max(own.experiment), func.count()).where(here).group_by(own.name)
    found = {name: (experiment, count) for name, experiment, count in connection.execute(newest)}
    those = own.experiment.in_({experiment for experiment, _ in found.values()})
    told = select(own.name, own.experiment, own.model, own.dataset).where(here, those)
    for name, experiment, model, dataset in connection.execute(told):
        if found[name][0] == experiment:
            detail = f"{model} on {dataset}"
            yield Hit(
                kind="run_task",
                name=name,
                experiment=experiment,
                detail=detail,
                count=found[name][1],
            )


def _experiments(connection: Connection, home: str, names: Sequence[str]) -> Iterator[Hit]:
    own = EXPERIMENTS.c
    told = select(own.id, own.plan, own.state).where(own.home == home, own.id.in_(names))
    for name, plan, state in connection.execute(told):
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
    "run_task": _run_tasks,
}
"""Kind → what tells of names where they lead."""
