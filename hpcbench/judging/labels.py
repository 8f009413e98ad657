"""Files of human labels: which answers a person called right, or how good, and which of these are ours.

    sample,answer,label                       sample,answer,other,label
    s1,"12,50",right                          s1,"12,50","about 12",first
    s2,13.00,wrong                            s2,13.00,12,tie

CSV (delimiter `,` or `;`) or JSONL with the same keys. A label is about an answer, not about a sample: it
counts where this experiment has the very answer that the file quotes, but for white space at its ends. So
labels stay true when a model is asked again and answers the same, and labels of another model's answers are
found and left out. Labels have the words of the verdicts: right and wrong, a grade, first (the column
`answer`), second (the column `other`) and tie.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.errors import Problem, UserError
from hpcbench.experiment.access import ensure_folder
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_atomic
from hpcbench.files.user import read_text
from hpcbench.registry.collections import csv_rows, jsonl_rows

COLUMNS = ("sample", "answer", "label")
PAIRS = ("sample", "answer", "other", "label")


@dataclass(frozen=True, slots=True)
class Label:
    """A person's word about an answer, or a pair of answers."""

    sample: str
    answers: tuple[str, ...]
    """The answer; of a pair also the other one."""
    value: float
    """The label as a score from 0 to 1, as the metric gives verdicts."""


def read_labels(path: Path, metric: Any, *, pairs: bool) -> list[Label]:
    """The labels of a file.

    Args:
        path: the file.
        metric: the judge's metric, not swapped: it gives labels their values.
        pairs: whether labels are about pairs of answers.

    Raises:
        UserError: the file cannot be read, a column is missing, a label is none of the verdicts, or an answer
            has two labels.
    """
    wanted = PAIRS if pairs else COLUMNS
    text, found, seen = read_text(path), list[Label](), dict[tuple[str, ...], int]()
    rows = (csv_rows if path.suffix.lower() == ".csv" else jsonl_rows)(text, path)
    for line, row in rows:
        if lacking := [name for name in wanted if name not in row]:
            what = f"a label needs {', '.join(wanted)}; there is no {', '.join(lacking)}"
            raise UserError(Problem(what, str(path), line, remedy="see docs/judging.md"))
        said = row["label"]
        if said is None or (isinstance(said, str) and not said.strip()):
            continue  # not labelled yet
        answers = tuple(_plain(row[name]) for name in wanted[1:-1])
        try:
            value = metric.score({"verdict": _verdict(said, metric)}, ()).numerator
        except ValueError as error:
            what = str(error).replace("verdict", "label", 1)
            raise UserError(Problem(what, str(path), line)) from error
        key = (str(row["sample"]), *answers)
        if key in seen:
            what = (
                f"a second label for the same answer to sample '{key[0]}', after line {seen[key]}"
            )
            raise UserError(Problem(what, str(path), line, remedy="keep one of them"))
        seen[key] = line
        found.append(Label(key[0], answers, float(value)))
    if not found:
        raise UserError(Problem("the file has no label", str(path), remedy="see docs/judging.md"))
    return found


@dataclass(frozen=True, slots=True)
class Matched:
    """Labels that are about answers of an experiment."""

    values: Mapping[str, float]
    """Sample → its label."""
    given: int
    """Labels in the file."""
    other_answers: int
    """Labels of samples that have another answer here, or none."""
    unknown: int
    """Labels of samples that are not of this run task."""


def matched(labels: Sequence[Label], answers: Mapping[str, tuple[str | None, ...]]) -> Matched:
    """The labels that are about these answers.

    Args:
        labels: of a file.
        answers: every sample of the run task → its answer, or both of a pair; None: it has none.
    """
    values, other, unknown = dict[str, float](), 0, 0
    for label in labels:
        here = answers.get(label.sample)
        if here is None:
            unknown += 1
        elif tuple(None if one is None else _plain(one) for one in here) == label.answers:
            values[label.sample] = label.value
        else:
            other += 1
    return Matched(values, len(labels), other, unknown)


def keep_labels(experiment: Experiment, judge: str, path: Path) -> None:
    """Copy a file of labels, read before, into the experiment, where evaluation finds it.

    Args:
        experiment: the experiment.
        judge: the run task, without the mark of its repeats.
        path: the file.
    """
    rows = (csv_rows if path.suffix.lower() == ".csv" else jsonl_rows)(read_text(path), path)
    lines = [json.dumps(dict(row), ensure_ascii=False) + "\n" for _, row in rows]
    target = experiment.labels_file(judge)
    ensure_folder(target.parent, experiment.resolved.site)
    write_atomic(target, "".join(lines).encode())


def _plain(text: object) -> str:
    """An answer without white space at its ends; programs for tables change line breaks."""
    whole = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return whole.replace("\r\n", "\n").strip()


def _verdict(said: Any, metric: Any) -> Any:
    """The label as a verdict: a table has grades as text."""
    if isinstance(said, str):
        said = said.strip()
        if metric.kind != "graded":
            return said.casefold()
        try:
            return float(said.replace(",", "."))
        except ValueError:
            return said
    return said
