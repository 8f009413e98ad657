"""Answers as workers recorded them: single ones by their places, and the times of all of a run task."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.evaluation.reading import e2e_ms
from hpcbench.experiment.claims import withdrawn
from hpcbench.experiment.layout import Experiment, attempts_in
from hpcbench.files.archive import FOLDED, Folder
from hpcbench.files.atomic import parse_line
from hpcbench.portal.lru import Stamp, stamp_of
from hpcbench.schema.plan import Cut
from hpcbench.schema.records import Response
from hpcbench.speed import LATENCIES

MOST_BYTES = 64 << 20
"""Of answers that are read for one page; of what stands in further shards nothing is told there."""


FEW = 4
"""Samples up to which each is looked for alone."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer as it was recorded."""

    record: Mapping[str, Any]
    """Its line."""
    shard: int
    """Shard it was asked in."""
    attempt: int
    """Attempt that brought it."""

    @property
    def times(self) -> dict[str, float | None]:
        """Seconds, by the names of `speed`; none of them where there is no answer of a real request."""
        try:
            response = Response.from_json(self.record)
            if response.text is None or not response.tries:
                return {}
            found = {name: latency(response) for name, latency in LATENCIES.items()}
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            return {}
        return {
            name.removesuffix("_ms"): None if value is None else value / 1000
            for name, value in found.items()
        }

    @property
    def latency(self) -> float | None:
        """Seconds from sending to the last text; None where there is no answer of a real request."""
        found = e2e_ms(self.record)
        return None if found is None else round(found / 1000, 9)

    @property
    def output_tokens(self) -> int | None:
        """Tokens as the engine counted them."""
        return self.usage["completion_tokens"]

    @property
    def usage(self) -> dict[str, int | None]:
        """Tokens as the engine counted them, and as the tokenizer did."""
        told = self.record.get("usage")
        told = told if isinstance(told, Mapping) else {}
        counts = {name: told.get(name) for name in ("prompt_tokens", "completion_tokens")}
        counts["recount"] = self.record.get("recount")
        return {name: one if isinstance(one, int) else None for name, one in counts.items()}


def cut_of(experiment: Experiment, run_task: str) -> Cut | None:
    """How a run task is cut into shards; None: the experiment has no such run task."""
    return next((cut for cut in experiment.work.cuts if cut.run_task == run_task), None)


def shard_at(cut: Cut, place: int) -> int:
    """Number of the shard that a place lies in."""
    first = min(cut.pilot, cut.samples)
    return 0 if place < first else bool(cut.pilot) + (place - first) // cut.size


def answers_stamp(experiment: Experiment, run_task: str) -> Stamp:
    """What tells the answers of a run task now from those of another time, while workers write, too."""
    folder = experiment.shards_dir(run_task)
    here, folded = stamp_of(folder), stamp_of(folder / FOLDED)
    if here is None:
        return None
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".responses.jsonl"):
                try:
                    total += entry.stat().st_size
                except FileNotFoundError:  # folded meanwhile
                    continue
    return here[2], total, folded[2] if folded else 0


def records_at(
    experiment: Experiment, run_task: str, wanted: Mapping[int, str], most: int = MOST_BYTES
) -> dict[int, Recorded]:
    """Answers to samples, those that can be found.

    Args:
        experiment: the experiment.
        run_task: its name.
        wanted: place of a sample → its id.
        most: bytes that are read.
    """
    cut = cut_of(experiment, run_task)
    if cut is None or not wanted:
        return {}
    by_shard: dict[int, dict[int, str]] = {}
    for place, sample in wanted.items():
        by_shard.setdefault(shard_at(cut, place), {})[place] = sample
    folder = experiment.shards(run_task)
    attempts = attempts_in(folder.names)
    found: dict[int, Recorded] = {}
    left = most
    for shard, some in sorted(by_shard.items()):
        gone = withdrawn(folder, shard, attempts.get(shard, ()))
        for attempt in attempts.get(shard, ()):
            missing = {
                place: sample
                for place, sample in some.items()
                if place not in found and sample not in gone.get(attempt, ())
            }
            if not missing:
                continue
            if left <= 0:
                return found
            data = _read(folder, f"{shard:05d}.{attempt}.responses.jsonl", left)
            left -= len(data)
            lines = _by_id(data) if len(missing) > FEW else {}
            for place, sample in missing.items():
                record = _line_of(lines.get(_form(sample), data), sample)
                if record is None and lines:
                    record = _line_of(data, sample)
                if record is not None:
                    found[place] = Recorded(record, shard, attempt)
    return found


def _read(folder: Folder, name: str, most: int) -> bytes:
    """The beginning of a file, whole lines."""
    parts, size = list[bytes](), 0
    for block in folder.blocks(name):
        parts.append(block)
        size += len(block)
        if size >= most:
            break
    data = b"".join(parts)[:most]
    return data[: data.rfind(b"\n") + 1]


_HEAD = b'{"sample_id":"'


def _by_id(data: bytes) -> dict[bytes, bytes]:
    """Id of a sample, as it is written → the first line that begins with it."""
    found: dict[bytes, bytes] = {}
    for line in data.split(b"\n"):
        if line.startswith(_HEAD):
            found.setdefault(line[len(_HEAD) - 1 : line.find(b'"', len(_HEAD)) + 1], line + b"\n")
    return found


def _form(sample: str) -> bytes:
    """An id as workers write it."""
    return json.dumps(sample).encode()


def _line_of(data: bytes, sample: str) -> Mapping[str, Any] | None:
    """The first sound answer to a sample among lines.

    Its id is looked for as text, which takes a thousandth of the time of decoding all lines.
    """
    forms = {json.dumps(sample), json.dumps(sample, ensure_ascii=False)}
    for form in forms:
        try:
            needle = form.encode()
        except UnicodeEncodeError:
            continue
        at = data.find(needle)
        while at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            record = parse_line(data[begin:end])
            if record is not None and record.get("sample_id") == sample and _is_sound(record):
                return record
            at = data.find(needle, end)
    return None


def _is_sound(record: Mapping[str, Any]) -> bool:
    """As far as every reader wants it."""
    text = record.get("text")
    return isinstance(record.get("outcome"), str) and (text is None or isinstance(text, str))


_OF_TIMES = ("sample", "shard", "outcome", "e2e_ms", "completion_tokens")


def _untold(_path: Path, _lines: int) -> None:
    """Lines that nobody can read are told by the evaluation."""


def times_of(experiment: Experiment, run_task: str) -> Any:
    """A row an answer of a run task: `sample`, `shard`, `outcome`, `latency` (seconds), `output_tokens`."""
    import polars

    from hpcbench.interchange.answers import answer_frames

    frames = [
        frame.select(
            "sample",
            "shard",
            "outcome",
            (polars.col("e2e_ms") / 1000).round(9).alias("latency"),
            polars.col("completion_tokens").alias("output_tokens"),
        )
        for frame in answer_frames(experiment, run_task, _untold, _OF_TIMES)
    ]
    if frames:
        return polars.concat(frames)
    texts, whole = dict.fromkeys(("sample", "outcome"), polars.String), polars.Int64
    return polars.DataFrame(
        schema={**texts, "shard": whole, "latency": polars.Float64, "output_tokens": whole}
    ).select("sample", "shard", "outcome", "latency", "output_tokens")


def samples_saying(experiment: Experiment, run_task: str, pattern: str) -> Any:
    """Ids of samples whose answer matches a regular expression, as a series."""
    import polars

    from hpcbench.interchange.answers import answer_frames

    says = polars.col("answer").str.contains(pattern).fill_null(value=False)
    found = [
        frame.filter(says)["sample"]
        for frame in answer_frames(experiment, run_task, _untold, ("sample", "answer"))
    ]
    return polars.concat(found) if found else polars.Series("sample", [], dtype=polars.String)
