"""Turns of agents as workers recorded them: the lines of one sample, or of all, without decoding the others.

Lines hold images in base64, so a file may have hundreds of MiB. One look at the head of each line finds the
lines of every sample; only wanted lines are decoded. `agents.trajectory` gives them their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpcbench.experiment.claims import withdrawn
from hpcbench.experiment.layout import Experiment, attempts_in, turns_name
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import parse_line

MOST_BYTES = 64 << 20
"""Bytes of one sample's lines that are read; later turns are left out."""

HEAD = 4096
"""Bytes of a line in which its sample is looked for."""

_HEAD = re.compile(rb'\{"sample":("(?:[^"\\]|\\.)*"),"turn":[0-9]+,')
"""The beginning of a line as workers write it."""

Line = Mapping[str, Any]
"""A line of a sample: a turn, or a call before it was made."""


class _Span(NamedTuple):
    """A line's place."""

    file: str
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a shard's samples, lines of lower attempts first."""

    _folder: Folder
    _spans: Mapping[str, Sequence[_Span]] = field(default_factory=dict)

    @property
    def samples(self) -> Sequence[str]:
        """Samples with a line, in the order of their first ones."""
        return [*self._spans]

    def of(self, sample: str, most: int = MOST_BYTES) -> list[Line]:
        """The sound lines of a sample, in order; none for a sample without turns.

        Args:
            sample: its id.
            most: maximum number of bytes to read; at least one line is read.
        """
        found, left = list[Line](), most
        for span in self._spans.get(sample, ()):
            if found and span.size > left:
                break
            left -= span.size
            line = parse_line(self._folder.part(*span))
            if line is not None and line.get("sample") == sample and _is_sound(line):
                found.append(line)
        return found


def turns_of(experiment: Experiment, run_task: str, shard: int, sample: str) -> list[Line]:
    """The lines of one sample; none where it has no turns.

    Args:
        experiment: the experiment.
        run_task: its name.
        shard: number of the sample's shard.
        sample: its id.
    """
    return shard_turns(experiment, run_task, shard).of(sample)


def shard_turns(experiment: Experiment, run_task: str, shard: int) -> Turns:
    """The turns of a shard's samples; lines that a later `resume` withdrew are left out."""
    folder = experiment.shards(run_task)
    attempts = attempts_in(folder.names).get(shard, ())
    gone = withdrawn(folder, shard, attempts)
    spans: dict[str, list[_Span]] = {}
    for attempt in attempts:
        left_out = gone.get(attempt, frozenset[str]())
        for sample, span in _lines(folder, turns_name(shard, attempt)):
            if sample not in left_out:
                spans.setdefault(sample, []).append(span)
    return Turns(folder, spans)


def _lines(folder: Folder, name: str) -> Iterator[tuple[str, _Span]]:
    """Sample and place of each whole line; of a line of another form, all is decoded."""
    at = 0
    for page in folder.pages(name):
        begin = 0
        while begin < len(page):
            end = page.find(b"\n", begin) + 1
            match = _HEAD.match(page, begin, min(end, begin + HEAD))
            head: Any = match and parse_line(b'{"sample":' + match[1] + b"}")
            sample = (head or parse_line(page[begin:end]) or {}).get("sample")
            if isinstance(sample, str):
                yield sample, _Span(name, at + begin, end - begin)
            begin = end
        at += len(page)


def _is_sound(line: Line) -> bool:
    """Whether a line has the parts that every reader needs."""
    turn = line.get("turn")
    parts = (line.get("intent"), line.get("reply"))
    return isinstance(turn, int) and any(isinstance(one, dict) for one in parts)
