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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from hpcbench.experiment.access import ensure_folder, readable_like
from hpcbench.experiment.claims import numbered_attempts_of, readable
from hpcbench.experiment.layout import Experiment, experiments_dir, responses_name
from hpcbench.files.archive import FOLDED
from hpcbench.files.atomic import replacing
from hpcbench.schema.records import Response

INDEX_VERSION = 1

SUFFIX = ".index"

BLOCK = 1 << 18
"""Rows that are read at once."""

ANSWERS = ("ok", "truncated", "refused")
"""Outcomes that are answers; requests with another outcome are asked again."""

AT_ONCE = 1 << 19
"""About the most keys that are looked up at once: that takes 60 bytes a key."""

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
    row: Any
    """Its row, counted through all sources."""


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

    def at(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Origin and number of the place of some rows.

        Raises:
            OSError, ValueError: as `read`.
        """
        if self.columns is not None:
            _, origins, places = self.columns
            return [(int(origins[row]), int(places[row])) for row in rows]
        assert self.file is not None
        with self.file.open("rb") as file:
            number = file.fileno()
            return [
                (
                    _whole(os.pread(number, 8, self.start + 8 * (self.count + row)), 8),
                    _whole(os.pread(number, 4, self.start + 16 * self.count + 4 * row), 4),
                )
                for row in rows
            ]

    @cached_property
    def fences(self) -> Any:
        """First key of each block, and the last key."""
        import numpy

        starts = [*range(0, self.count, BLOCK), *([self.count - 1] if self.count else [])]
        return numpy.concatenate([self.read(0, row, 1) for row in starts] or [[]]).astype("u8")

    def blocks(self, wanted: Any) -> Iterator[tuple[int, Any, int, int]]:
        """Blocks of keys in which some sorted keys may be: first row, keys, begin and end among the wanted.

        Raises:
            OSError, ValueError: as `read`.
        """
        import numpy

        begins = numpy.searchsorted(wanted, self.fences[:-1], "left").tolist()
        ends = numpy.searchsorted(wanted, self.fences[1:], "right").tolist()
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            if begin < end:
                first = number * BLOCK
                yield first, self.read(0, first, min(BLOCK, self.count - first)), begin, end

    def rows_of(self, wanted: Any) -> Any:
        """A row of each of some sorted keys; -1: none has it.

        Raises:
            OSError, ValueError: as `read`.
        """
        import numpy

        rows = numpy.full(len(wanted), -1, "i8")
        for first, block, begin, end in self.blocks(wanted):
            at = numpy.searchsorted(block, wanted[begin:end])
            numpy.minimum(at, len(block) - 1, out=at)
            has = numpy.flatnonzero(block[at] == wanted[begin:end])
            rows[begin + has] = first + at[has]
        return rows


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
    for run_task, basis in experiment.manifest.answer_bases.items():
        if basis:
            found.setdefault(basis, []).append(run_task)
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


def _key_of(response: Response) -> str | None:
    """The key under which others find an answer; None: nothing can take it over."""
    return response.answer_key if response.outcome in ANSWERS else None


def origin_of(experiment: str, run_task: str, response: Response) -> int:
    """Hash of who was asked: for a copy, of the experiment that it was copied from at first."""
    source = response.reused_from or {
        "experiment": experiment,
        "run_task": run_task,
        "sample": response.sample_id,
    }
    text = "\0".join(source[name] for name in ("experiment", "run_task", "sample"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _rows(
    experiment: Experiment, run_tasks: Sequence[str]
) -> tuple[tuple[Any, Any, Any], list[Place]]:
    """Keys, origins and places, sorted by key, and what the numbers of places mean. Reads every answer."""
    import numpy

    keys, origins, numbers = array("Q"), array("Q"), array("I")
    places: list[Place] = []
    for run_task in run_tasks:
        for shard, attempts in numbered_attempts_of(experiment, run_task):
            for attempt, own in attempts:
                keyed = [(key, one) for one in own if (key := _key_of(one)) is not None]
                if keyed:
                    places.append((run_task, shard.index, attempt))
                for key, one in keyed:
                    keys.append(int(key[:16], 16))
                    origins.append(origin_of(experiment.id, run_task, one))
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


def _whole(data: bytes, size: int) -> int:
    """A number of a column.

    Raises:
        ValueError: the file is shorter than it was.
    """
    if len(data) != size:
        raise ValueError("an index is shorter than it was")
    return int.from_bytes(data, "little")


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


def find(found: Sequence[Source], keys: Any, taken: Any) -> Any:
    """An answer for each key: no answer serves two keys, nor one that is taken.

    Keys are taken in ranges, so that little is in memory at once: equal keys are in one range, so the ranges
    do not depend on each other. Most keys are asked once; for these the first answer will do.

    Args:
        found: where to look, oldest first.
        keys: first 8 bytes of each key, an array of unsigned integers; 0 fits nothing. It is overwritten:
            the result takes its place.
        taken: origins of answers that are used already.

    Returns:
        Row of the answer of each key, counted through all sources; -1: none is left.
    """
    import numpy

    bits = min(8, max(0, math.ceil(math.log2(max(1, len(keys)) / AT_ONCE))))
    top = keys.astype("<u8", copy=False).view("u1")[7::8] >> (8 - bits)
    rows = keys.view("i8")
    for number in range(1 << bits):
        own = numpy.flatnonzero(top == number)
        some = keys[own]
        # In order, whatever searches them is faster; of equal keys, the first are served first.
        order = numpy.argsort(some, kind="stable")
        rows[own[order]] = _served(found, some[order], taken)
    return rows


def _served(found: Sequence[Source], keys: Any, taken: Any) -> Any:
    """Row of an answer for each of some sorted keys."""
    import numpy

    rows = numpy.full(len(keys), -1, "i8")
    equal = keys[1:] == keys[:-1]
    once = numpy.full(len(keys), not len(taken))
    once[1:] &= ~equal
    once[:-1] &= ~equal
    left = numpy.flatnonzero(once & (keys != 0))
    first = 0
    for source in found:
        with contextlib.suppress(OSError, ValueError):  # it was deleted meanwhile
            row = source.rows_of(keys[left])
            rows[left[row >= 0]] = row[row >= 0] + first
            left = left[row < 0]
        first += source.count
    if not once.all():
        several = numpy.flatnonzero(~once)
        hits = look_up(found, keys[several])
        chosen = assign(keys[several], hits, taken)
        rows[several[chosen >= 0]] = hits.row[chosen[chosen >= 0]]
    return rows


def look_up(found: Sequence[Source], keys: Any) -> Hits:
    """All answers that fit sorted keys.

    Args:
        found: where to look.
        keys: as in `find`.
    """
    import numpy

    begin = int(numpy.searchsorted(keys, 0, "right"))
    rows: list[tuple[Any, Any, Any]] = []
    start = 0
    for source in found:
        # It may have been deleted meanwhile.
        with contextlib.suppress(OSError, ValueError):
            rows += [
                (query + begin, source.read(1, first, count)[row], row + (start + first))
                for first, count, query, row in _joined(source, keys[begin:])
            ]
        start += source.count
    if not rows:
        empty = numpy.zeros(0, "i8")
        return Hits(empty, empty.astype("u8"), empty)
    return Hits(*(numpy.concatenate(column) for column in zip(*rows, strict=True)))


def _joined(source: Source, wanted: Any) -> Iterator[tuple[int, int, Any, Any]]:
    """Blocks of a source with hits: first row, rows, number of the sorted key and row of each hit."""
    import numpy

    for first, block, begin, end in source.blocks(wanted):
        some = wanted[begin:end]
        left = numpy.searchsorted(block, some, "left")
        fits = numpy.searchsorted(block, some, "right") - left
        if not fits.any():
            continue
        query = numpy.repeat(numpy.arange(begin, end), fits)
        nth = numpy.arange(len(query)) - numpy.repeat(numpy.cumsum(fits) - fits, fits)
        yield first, len(block), query, numpy.repeat(left, fits) + nth


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
    nth = numpy.arange(len(keys)) - numpy.searchsorted(keys, keys, "left")
    at = numpy.searchsorted(answer_keys, keys, "left") + nth
    enough = at < numpy.searchsorted(answer_keys, keys, "right")
    chosen[enough] = answers[at[enough]]
    return chosen


def counts(found: Sequence[Source], rows: Any) -> dict[str, int]:
    """Id of an experiment → rows that are of it.

    Args:
        found: the sources.
        rows: as `find` gives them.
    """
    import numpy

    ends = numpy.cumsum([one.count for one in found])
    numbers = numpy.zeros(len(found), "i8")
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        some = numpy.searchsorted(ends, some[some >= 0], "right")
        numbers += numpy.bincount(some, minlength=len(found))
    return {
        source.experiment.id: int(number)
        for source, number in zip(found, numbers, strict=True)
        if number
    }


def answers_at(found: Sequence[Source], rows: Any) -> dict[int, tuple[Source, Place, int]]:
    """Place among some rows → source, place and origin of the answer; those whose index is gone are left out.

    Args:
        found: the sources.
        rows: as `find` gives them.
    """
    answers: dict[int, tuple[Source, Place, int]] = {}
    start = 0
    for source in found:
        own = ((rows >= start) & (rows < start + source.count)).nonzero()[0]
        if len(own):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                for at, (origin, place) in zip(
                    own.tolist(), source.at((rows[own] - start).tolist()), strict=True
                ):
                    answers[at] = source, source.places[place], origin
        start += source.count
    return answers


class Reader:
    """Reads answers of other experiments by their whole key."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, Place], dict[tuple[str, int], Response]] = {}
        self._folders: dict[tuple[str, str], Any] = {}

    def answer(
        self, experiment: Experiment, place: Place, key: str, origin: int
    ) -> Response | None:
        """An answer, with its origin; None: it is gone or damaged, or has another key."""
        name = str(experiment.path), place
        if name not in self._tables:
            while len(self._tables) >= READ_TABLES:
                del self._tables[next(iter(self._tables))]
            try:
                self._tables[name] = self._read(experiment, place)
            except OSError:
                self._tables[name] = {}
        found = self._tables[name].get((key, origin))
        if found is None or found.reused_from is not None:
            return found
        here = {
            "experiment": experiment.id,
            "run_task": place[0],
            "sample": found.sample_id,
            "piece": f"{place[1]:05d}.{place[2]}",
        }
        return replace(found, reused_from=here)

    def _read(self, experiment: Experiment, place: Place) -> dict[tuple[str, int], Response]:
        run_task, shard, attempt = place
        folder = self._folders.get((str(experiment.path), run_task))
        if folder is None:
            folder = self._folders[str(experiment.path), run_task] = experiment.shards(run_task)
        found: dict[tuple[str, int], Response] = {}
        name = responses_name(shard, attempt)
        for response in readable(folder.records(name), folder.path / name):
            if (key := _key_of(response)) is not None:
                found.setdefault((key, origin_of(experiment.id, run_task, response)), response)
        return found
