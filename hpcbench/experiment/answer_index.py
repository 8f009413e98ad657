"""Which experiments have an answer under which key: an index beside the experiments, rebuilt at will.

`HOME/answers/BASIS/EXPERIMENT.index` has the answers of one experiment with one basis:

    {"version":1,"experiment":"…","count":n,"table":m,"stamp":[…]}   a line
    n × 8 bytes    keys, sorted: the first 8 bytes of each answer's key
    n × 8 bytes    origins: a hash of who was asked, so that a copy is no second answer
    n × 4 bytes    places: numbers of lines of the table below
    [["RUN_TASK",shard,attempt],…]   m bytes

An index file is written whole. It is a hint: a reader compares the whole key in the answer's own record. A
file that is missing parts, or whose stamp is not that of the answers, is made again in memory. So a kill,
damage and a deleted index cost time only. No database: home folders are on shared file systems.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from hpcbench.experiment.access import ensure_folder, readable_like
from hpcbench.experiment.claims import numbered_attempts_of
from hpcbench.experiment.layout import Experiment, experiments_dir, responses_name
from hpcbench.files.archive import FOLDED
from hpcbench.files.atomic import replacing

INDEX_VERSION = 1

SUFFIX = ".index"

BLOCK = 1 << 18
"""Rows that are read at once."""

ANSWERS = ("ok", "truncated", "refused")
"""Outcomes that are answers; requests with another outcome are asked again."""

AT_ONCE = 1 << 20
"""About the most keys that are looked up at once: sorting them takes a hundred bytes a key."""

READ_TABLES = 64
"""Files of answers whose records are kept in memory."""

Place = tuple[str, int, int]
"""Run task, shard and attempt."""


class Hits(NamedTuple):
    """Answers that fit keys, one row an answer; arrays of equal length, sorted by source."""

    query: Any
    """Number of the key among the keys that were looked up."""
    origin: Any
    """Hash of who was asked."""
    source: Any
    """Number of its source."""
    place: Any
    """Number of its place in the source."""


@dataclass
class Source:
    """The answers of one experiment with one basis."""

    experiment: Experiment
    """The experiment."""
    file: Path | None
    """Its index file; None: it is in memory."""
    count: int
    """Number of answers."""
    start: int
    """Offset of the first key in the file."""
    columns: tuple[Any, Any, Any] | None = None
    """Keys, origins and places in memory."""
    table: Sequence[Place] | None = None
    """Places in memory."""

    @cached_property
    def places(self) -> Sequence[Place]:
        """Meaning of the numbers of places."""
        if self.table is not None:
            return self.table
        assert self.file is not None
        with self.file.open("rb") as file:
            file.seek(self.start + 20 * self.count)
            return [(str(one[0]), int(one[1]), int(one[2])) for one in json.loads(file.read())]

    def read(self, column: int, first: int, count: int) -> Any:
        """Rows `first` to `first + count` of keys (0), origins (1) or places (2).

        Raises:
            OSError, ValueError: the file is gone, or shorter than it was.
        """
        import numpy

        if self.columns is not None:
            return self.columns[column][first : first + count]
        kind = "<u4" if column == 2 else "<u8"
        width = 4 if column == 2 else 8
        offset = self.start + (0, 8, 16)[column] * self.count + width * first
        assert self.file is not None
        found = numpy.fromfile(self.file, kind, count, offset=offset)
        if len(found) != count:
            raise ValueError(f"{self.file} is shorter than it was")
        return found


# --- writing ------------------------------------------------------------------------------------------


def announce(experiment: Experiment) -> None:
    """Say that an experiment will have answers, so that later ones look at what it has until it ends."""
    for basis in _bases(experiment):
        file = _index_of(experiment, basis)
        if not file.exists():
            ensure_folder(file.parent, experiment.resolved.site)
            write_rows(file, experiment, (array("Q"), array("Q"), array("I")), [], [])


def write_index(experiment: Experiment) -> None:
    """Write the index of an experiment's answers; where nothing has changed, nothing is written.

    Raises:
        OSError: the disk is full or gone.
    """
    for basis, run_tasks in _bases(experiment).items():
        file, stamp = _index_of(experiment, basis), _stamp(experiment, run_tasks)
        header = _header(file)
        if header is not None and header[0]["stamp"] == stamp:
            continue
        columns, places = _rows(experiment, run_tasks)
        ensure_folder(file.parent, experiment.resolved.site)
        write_rows(file, experiment, columns, places, stamp)


def unused(root: Path) -> Iterator[Path]:
    """Index files of experiments that are gone, and folders that are empty without them."""
    for folder in _folders(root):
        files = [*folder.glob("*" + SUFFIX)]
        gone = [one for one in files if not (experiments_dir(root) / one.stem).is_dir()]
        yield from gone
        if len(gone) == len(files) == len([*folder.iterdir()]):
            yield folder


def _bases(experiment: Experiment) -> dict[str, list[str]]:
    """Basis → run tasks with answers of that basis."""
    found: dict[str, list[str]] = {}
    known: Any = experiment.manifest.get("answer_bases") or {}
    for run_task, basis in known.items():
        if basis:
            found.setdefault(str(basis), []).append(run_task)
    return found


def _index_of(experiment: Experiment, basis: str) -> Path:
    return _folder(experiment.path.parent.parent, basis) / (experiment.id + SUFFIX)


def _folder(root: Path, basis: str) -> Path:
    return root / "answers" / basis


def _folders(root: Path) -> list[Path]:
    try:
        return [one for one in (root / "answers").iterdir() if one.is_dir()]
    except FileNotFoundError:
        return []


def _stamp(experiment: Experiment, run_tasks: Sequence[str]) -> list[Any]:
    """Changes with the answers of these run tasks, also while workers write."""
    found: list[Any] = []
    for run_task in run_tasks:
        count = size = 0
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(experiment.shards_dir(run_task)) as entries,
        ):
            for entry in entries:
                if entry.name == FOLDED or entry.name.endswith(".responses.jsonl"):
                    with contextlib.suppress(FileNotFoundError):  # folded meanwhile
                        size += entry.stat().st_size
                        count += 1
        found.append([run_task, count, size])
    return found


class _Keyed(NamedTuple):
    """An answer, in short."""

    sample_id: str
    key: str | None
    """None: nothing can take it over."""
    origin: int

    @classmethod
    def of(cls, experiment: str, run_task: str, record: Mapping[str, Any]) -> _Keyed:
        sample, key = str(record["sample_id"]), record.get("answer_key")
        if record["outcome"] not in ANSWERS or not isinstance(key, str):
            return cls(sample, None, 0)
        return cls(sample, key, origin_of(experiment, run_task, record))


def origin_of(experiment: str, run_task: str, record: Mapping[str, Any]) -> int:
    """Hash of who was asked: for a copy, of the experiment that it was copied from at first."""
    source = record.get("reused_from") or {
        "experiment": experiment,
        "run_task": run_task,
        "sample": record["sample_id"],
    }
    text = "\0".join(str(source[name]) for name in ("experiment", "run_task", "sample"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _rows(
    experiment: Experiment, run_tasks: Sequence[str]
) -> tuple[tuple[Any, Any, Any], list[Place]]:
    """Keys, origins and places, sorted by key, and what the numbers of places mean. Reads every answer."""
    import numpy

    keys, origins, numbers = array("Q"), array("Q"), array("I")
    places: list[Place] = []
    for run_task in run_tasks:

        def read(record: Mapping[str, Any], run_task: str = run_task) -> _Keyed:
            return _Keyed.of(experiment.id, run_task, record)

        for shard, attempts in numbered_attempts_of(experiment, run_task, read):
            for attempt, own in attempts:
                keyed = [one for one in own if one.key is not None]
                if keyed:
                    places.append((run_task, shard.index, attempt))
                for one in keyed:
                    keys.append(int(one.key[:16], 16))
                    origins.append(one.origin)
                    numbers.append(len(places) - 1)
    columns = [
        numpy.frombuffer(one, kind)
        for one, kind in ((keys, "u8"), (origins, "u8"), (numbers, "u4"))
    ]
    order = numpy.argsort(columns[0], kind="stable")
    first, second, third = (column[order] for column in columns)
    return (first, second, third), places


def write_rows(
    file: Path,
    experiment: Experiment,
    columns: Sequence[Any],
    places: Sequence[Place],
    stamp: Sequence[Any],
) -> int:
    """Write an index file whole, for the readers of the experiment; returns the offset of its first key.

    Args:
        file: its path.
        experiment: the experiment.
        columns: keys in order, their origins and the numbers of their places.
        places: what these numbers mean.
        stamp: changes with the experiment's answers.
    """
    count = len(columns[0])
    table = _line(places)
    header = {
        "version": INDEX_VERSION, "experiment": experiment.id, "count": count, "table": len(table),
        "stamp": stamp,
    }  # fmt: skip
    head = _line(header)
    with replacing(file) as temporary:
        readable_like(temporary, experiment.path.stat())
        temporary.write_bytes(b"".join([head, *(one.tobytes() for one in columns), table]))
    return len(head)


def _line(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _header(file: Path) -> tuple[dict[str, Any], int] | None:
    """The header of a whole index file and its length; None: it is missing, damaged or of another version."""
    try:
        with file.open("rb") as opened:
            line = opened.readline(1 << 24)
            found = json.loads(line)
            size = os.fstat(opened.fileno()).st_size
            whole = size == len(line) + 20 * int(found["count"]) + int(found["table"])
            if found["version"] != INDEX_VERSION or not whole or "stamp" not in found:
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found, len(line)


# --- looking up ---------------------------------------------------------------------------------------


def sources(root: Path, basis: str, without: Collection[str] = ()) -> list[Source]:
    """Experiments of a home with answers of a basis, oldest first.

    Args:
        root: the home.
        basis: the basis.
        without: ids of experiments to leave out.
    """
    try:
        names = sorted(one.name for one in _folder(root, basis).iterdir() if one.suffix == SUFFIX)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        experiment = Experiment(experiments_dir(root) / name.removesuffix(SUFFIX))
        if experiment.id not in without:
            # Another user's, deleted or damaged: its answers are asked again.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found.append(_source(experiment, basis))
    return found


def _source(experiment: Experiment, basis: str) -> Source:
    file = _index_of(experiment, basis)
    run_tasks = _bases(experiment).get(basis, [])
    if (known := _header(file)) is not None:
        header, start = known
        if header["stamp"] == _stamp(experiment, run_tasks):
            return Source(experiment, file, int(header["count"]), start)
    columns, places = _rows(experiment, run_tasks)
    return Source(experiment, None, len(columns[0]), 0, columns, places)


def find(found: Sequence[Source], keys: Any, taken: Any) -> tuple[Any, Hits]:
    """An answer for each key, as `assign` gives them, and only the hits that it chose.

    Many keys are taken in ranges: equal keys are in one range, so the ranges do not depend on each other.

    Args:
        found: where to look.
        keys: as in `look_up`.
        taken: origins of answers that are used already.

    Returns:
        Number of the hit of each key, -1: none; and the hits.
    """
    import numpy

    bits = max(0, math.ceil(math.log2(max(1, len(keys)) / AT_ONCE)))
    chosen = numpy.full(len(keys), -1, "i4")
    parts, count = list[Hits](), 0
    for number in range(1 << bits):
        own = numpy.flatnonzero(keys >> 64 - bits == number) if bits else numpy.arange(len(keys))
        some = keys[own]
        # In order, whatever sorts or searches them is faster; of equal keys, the first are served first.
        order = numpy.argsort(some, kind="stable")
        own, some = own[order], some[order]
        hits = look_up(found, some)
        nth = assign(some, hits, taken)
        has = numpy.flatnonzero(nth >= 0)
        parts.append(Hits(*(column[nth[has]] for column in hits)))
        chosen[own[has]] = numpy.arange(count, count + len(has))
        count += len(has)
    return chosen, Hits(*(numpy.concatenate(column) for column in zip(*parts, strict=True)))


def look_up(found: Sequence[Source], keys: Any) -> Hits:
    """Answers that fit keys.

    Args:
        found: where to look.
        keys: first 8 bytes of each key, an array of unsigned integers; 0 fits nothing.
    """
    import numpy

    order = numpy.argsort(keys, kind="stable")
    wanted = keys[order]
    begin = int(numpy.searchsorted(wanted, 0, "right"))
    order, wanted = order[begin:], wanted[begin:]
    rows: list[tuple[Any, Any, Any, Any]] = []
    for number, source in enumerate(found):
        try:
            rows += [
                (
                    order[query],
                    source.read(1, first, count)[row],
                    number,
                    source.read(2, first, count)[row],
                )
                for first, count, query, row in _joined(source, wanted)
            ]
        except (OSError, ValueError):
            continue  # it was deleted meanwhile
    if not rows:
        empty = numpy.zeros(0, "u8")
        return Hits(empty.astype("i8"), empty, empty.astype("i4"), empty.astype("u4"))
    return Hits(
        numpy.concatenate([one[0] for one in rows]),
        numpy.concatenate([one[1] for one in rows]),
        numpy.concatenate([numpy.full(len(one[0]), one[2], "i4") for one in rows]),
        numpy.concatenate([one[3] for one in rows]),
    )


def _joined(source: Source, wanted: Any) -> Iterator[tuple[int, int, Any, Any]]:
    """Blocks of a source with hits: first row, rows, number of the sorted key and row of each hit."""
    import numpy

    for first in range(0, source.count, BLOCK):
        count = min(BLOCK, source.count - first)
        low, high = source.read(0, first, 1)[0], source.read(0, first + count - 1, 1)[0]
        begin = int(numpy.searchsorted(wanted, low, "left"))
        end = int(numpy.searchsorted(wanted, high, "right"))
        if begin == end:
            continue
        block, some = source.read(0, first, count), wanted[begin:end]
        left = numpy.searchsorted(block, some, "left")
        fits = numpy.searchsorted(block, some, "right") - left
        if not fits.any():
            continue
        query = numpy.repeat(numpy.arange(begin, end), fits)
        nth = numpy.arange(len(query)) - numpy.repeat(numpy.cumsum(fits) - fits, fits)
        yield first, count, query, numpy.repeat(left, fits) + nth


def assign(keys: Any, hits: Hits, taken: Any) -> Any:
    """An answer for each key: no answer serves two keys, nor one that is taken.

    Args:
        keys: as in `look_up`; equal keys get different answers.
        hits: result of `look_up`.
        taken: origins of answers that are used already.

    Returns:
        Number of the hit of each key; -1: none is left.
    """
    import numpy

    chosen = numpy.full(len(keys), -1, "i8")
    free = numpy.flatnonzero(~numpy.isin(hits.origin, taken))
    # One hit of each key and origin, the oldest source's: a stable order keeps it first.
    by_key = free[numpy.lexsort((free, hits.origin[free], keys[hits.query[free]]))]
    key, origin = keys[hits.query[by_key]], hits.origin[by_key]
    new = numpy.ones(len(by_key), bool)
    new[1:] = (key[1:] != key[:-1]) | (origin[1:] != origin[:-1])
    answers, answer_keys = by_key[new], key[new]
    order = numpy.argsort(keys, kind="stable")
    asked = keys[order]
    nth = numpy.arange(len(asked)) - numpy.searchsorted(asked, asked, "left")
    at = numpy.searchsorted(answer_keys, asked, "left") + nth
    enough = at < numpy.searchsorted(answer_keys, asked, "right")
    chosen[order[enough]] = answers[at[enough]]
    return chosen


class Reader:
    """Reads answers of other experiments by their whole key."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, Place], dict[tuple[str, int], Mapping[str, Any]]] = {}
        self._folders: dict[tuple[str, str], Any] = {}

    def answer(
        self, experiment: Experiment, place: Place, key: str, origin: int
    ) -> dict[str, Any] | None:
        """The record of an answer, with its origin; None: it is gone or damaged, or has another key."""
        name = str(experiment.path), place
        if name not in self._tables:
            while len(self._tables) >= READ_TABLES:
                del self._tables[next(iter(self._tables))]
            try:
                self._tables[name] = self._read(experiment, place)
            except OSError:
                self._tables[name] = {}
        found = self._tables[name].get((key, origin))
        if found is None:
            return None
        here = {
            "experiment": experiment.id,
            "run_task": place[0],
            "sample": str(found["sample_id"]),
            "piece": f"{place[1]:05d}.{place[2]}",
        }
        return {**found, "reused_from": found.get("reused_from") or here}

    def _read(
        self, experiment: Experiment, place: Place
    ) -> dict[tuple[str, int], Mapping[str, Any]]:
        run_task, shard, attempt = place
        folder = self._folders.get((str(experiment.path), run_task))
        if folder is None:
            folder = self._folders[str(experiment.path), run_task] = experiment.shards(run_task)
        found: dict[tuple[str, int], Mapping[str, Any]] = {}
        for record in folder.records(responses_name(shard, attempt)):
            try:
                if record["outcome"] in ANSWERS and isinstance(record["answer_key"], str):
                    origin = origin_of(experiment.id, run_task, record)
                    found.setdefault((record["answer_key"], origin), record)
            except (KeyError, TypeError):
                continue  # a damaged line may still be JSON
        return found
