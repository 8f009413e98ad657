"""Files between the host, which reads answers, and a scorer elsewhere, which computes.

ASKED/metrics.json      metrics, their options, the time limit
ASKED/samples.jsonl     a sample with its reading a line
FOLDER/N.facts.json     what metric N says of itself, or why it cannot be loaded
FOLDER/N.scores.jsonl   its scores, a sample a line, in the order of the samples; whole, or missing

Both sides are one version of hpcbench: the host mounts its own. Numbers pass as JSON writes them, which
loses no bit of a double.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hpcbench.schema.records import Fault, Reading, Sample
from hpcbench.scorer.one import Score

METRICS, SAMPLES = "metrics.json", "samples.jsonl"

Asked = tuple[Sample, Reading | None]
"""A sample, and how its answer was read; None without an answer."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A metric to score by."""

    name: str
    """Name of its definition."""
    plugin: str
    """Name of the plugin, or dotted path of the class."""
    options: Mapping[str, Any] = field(default_factory=dict)


class NotPlain(TypeError):
    """A reading or sample contains a value that JSON cannot hold as it is."""


def write_metrics(folder: Path, metrics: Sequence[Wanted], seconds: float) -> None:
    """Write the metrics, and the time limit of one metric for one sample."""
    wanted = {"seconds": seconds, "metrics": [asdict(one) for one in metrics]}
    (folder / METRICS).write_text(json.dumps(wanted))


def write_samples(folder: Path, asked: Iterable[Asked]) -> list[str | None]:
    """Write the samples; returns for each None, or why it cannot be passed on."""
    refused: list[str | None] = []
    with (folder / SAMPLES).open("w", encoding="ascii") as file:
        for sample, reading in asked:
            try:
                line, why = _line(sample, reading), None
            except (TypeError, ValueError) as error:
                line, why = "null", f"its values cannot pass into an image: {error}"
            file.write(line + "\n")
            refused.append(why)
    return refused


def _line(sample: Sample, reading: Reading | None) -> str:
    """A sample without its images, and its reading, as one line."""
    plain = {
        "id": sample.id,
        "fields": _plain(sample.fields),
        "references": _plain(sample.references),
        "document": sample.document,
        "metadata": _plain(sample.metadata),
    }
    if reading is None:
        return json.dumps([plain, None])
    read = {one.name: getattr(reading, one.name) for one in fields(reading)}
    faults = [asdict(one) for one in reading.faults]
    return json.dumps([plain, {**read, "value": _plain(reading.value), "faults": faults}])


def _plain(value: Any) -> Any:
    """The value, if JSON gives the same value back but for tuples, which become lists.

    Raises:
        NotPlain: it does not.
    """
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {key: _plain(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        raise NotPlain("a key of an object is not text")
    raise NotPlain(f"{type(value).__name__} is not a type of JSON")


def read_metrics(folder: Path) -> tuple[list[Wanted], float]:
    """The metrics, and the time limit of one metric for one sample, seconds."""
    data = json.loads((folder / METRICS).read_text())
    return [Wanted(**one) for one in data["metrics"]], float(data["seconds"])


def read_asked(folder: Path) -> list[Asked | None]:
    """The samples; None for one that could not pass."""
    found: list[Asked | None] = []
    with (folder / SAMPLES).open(encoding="ascii") as file:
        for line in file:
            pair = json.loads(line)
            found.append(None if pair is None else (_sample(pair[0]), _reading(pair[1])))
    return found


def _sample(data: dict[str, Any]) -> Sample:
    references = tuple(data.pop("references"))
    return Sample(images=(), references=references, **data)


def _reading(data: dict[str, Any] | None) -> Reading | None:
    if data is None:
        return None
    faults = tuple(Fault(**one) for one in data.pop("faults"))
    return Reading(repairs=tuple(data.pop("repairs")), faults=faults, **data)


# --- what comes back ----------------------------------------------------------------------------------


def facts_file(folder: Path, number: int) -> Path:
    """Description of metric `number`."""
    return folder / f"{number}.facts.json"


def scores_file(folder: Path, number: int) -> Path:
    """Scores of metric `number`."""
    return folder / f"{number}.scores.jsonl"


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Write a file that is there only when it is whole: a scorer may be killed at any moment."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("w", encoding="ascii") as file:
        file.writelines(line + "\n" for line in lines)
    temporary.replace(path)


def score_line(score: Score | None, fault: str | None) -> str:
    """A score, or why there is none."""
    return json.dumps([score, fault])


def read_scores(path: Path) -> Iterator[tuple[Score | None, str | None]]:
    """The scores of a metric: score or fault of each sample.

    Raises:
        ValueError, TypeError, KeyError: foreign code wrote something else.
        OSError: there is no such file.
    """
    with path.open(encoding="ascii") as file:
        for line in file:
            score, fault = json.loads(line)
            if score is None:
                yield None, str(fault)
                continue
            parts, value, fields = score
            kept = parts if isinstance(parts, str) else (float(parts[0]), float(parts[1]))
            yield (
                Score(kept, float(value), [(str(a), float(b), float(c)) for a, b, c in fields]),
                None,
            )
