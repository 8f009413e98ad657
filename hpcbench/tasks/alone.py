"""Scoring a file of answers, without an experiment: `hpcbench score FILE`, `python -m hpcbench.tasks.vqa`.

The dataset is a definition by name or file, or a folder with a table of annotations. Answers are JSONL,
either hpcbench's own or objects with `id` and `text`, or CSV with `id` and one of `answer`, `model_answer`,
`prediction`, `text`; delimiter `,` or `;`. A CSV without `id` has a row for each sample, in the dataset's
order. Answers of VLMHyperBench v0.1 are such a CSV, `id;model_answer`; its ids count the rows of
`annotation.csv` from 0, so they are translated for a dataset whose samples are named by their row. The scores
equal those of `hpcbench submit`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.data.copies import Cache
from hpcbench.data.datasets import open_dataset
from hpcbench.data.table import TableDataset
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.evaluation import plan_metrics, summary
from hpcbench.evaluation.image_scoring import ImageScorer
from hpcbench.evaluation.resources import empty_figures
from hpcbench.evaluation.score_tables import Scored
from hpcbench.evaluation.scores import Change, Subject, update
from hpcbench.experiment.layout import home
from hpcbench.experiment.view.answer import Answer
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.experiment.view.scores import ScoresFiles
from hpcbench.files.user import read_text
from hpcbench.parsers import reading_of
from hpcbench.plugins import DatasetIterator
from hpcbench.registry.catalog import Catalog, load_definition, user_site
from hpcbench.registry.collections import csv_rows, jsonl_rows
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.names import names_in
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import Response, Sample
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site

ANSWERS = ("text", "answer", "model_answer", "prediction")
NAMES = ("sample_id", "id")
V01 = ("id", "model_answer")
"""Columns of the answers of VLMHyperBench v0.1, separated by `;`."""


def main(ml_task: str, argv: Sequence[str]) -> int:
    """Score a file of responses; return the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m hpcbench.tasks.{ml_task}",
        description=f"Score answers of ML task {ml_task}; `hpcbench score` does this and more.",
    )
    parser.add_argument(
        "--dataset",
        required=True,
        help="name or file of a dataset's definition, or a folder of data",
    )
    parser.add_argument(
        "--annotations",
        default="annotations.jsonl",
        help="table of samples in that folder (default: %(default)s)",
    )
    parser.add_argument("--split", help="only samples of this split")
    parser.add_argument(
        "--responses", required=True, type=Path, help="file of answers, JSONL or CSV"
    )
    parser.add_argument(
        "--metrics",
        type=names_in,
        default=(),
        help="names of metrics, separated by commas (default: those of the ML task)",
    )
    parser.add_argument(
        "--registry", type=Path, action="append", default=[], help="folder of a further registry"
    )
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    arguments = parser.parse_args(argv)
    try:
        catalog = Catalog(arguments.registry)
        dataset = dataset_of(catalog, arguments.dataset, arguments.annotations, arguments.split)
        run_task = run_task_of(catalog, ml_task, dataset, arguments.metrics)
        with tempfile.TemporaryDirectory() as folder:
            scored, _ = score_file(run_task, arguments.responses, Path(folder))
            table = summary.tabulate(scored)
    except HpcbenchError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command line of its own
        return error.exit_code
    if arguments.json:
        print(json.dumps(table.to_json(), ensure_ascii=False, indent=2))  # noqa: T201 - as above
    else:
        _print(table)
    return 0


def score_file(
    run_task: ResolvedRunTask,
    path: Path,
    folder: Path,
    columns: Sequence[str] = (),
    images: tuple[ImageScorer, ...] = (),
) -> tuple[Scored, Change]:
    """Score a file of answers; write the scores to `folder`.

    Args:
        run_task: the reading of answers, the dataset, the metrics.
        path: the file.
        folder: an empty folder.
        columns: metadata or fields to keep beside the dataset's `group_by`.
        images: prepared images in which some of the metrics score.

    Raises:
        UserError: the file cannot be read, or an answer belongs to no sample; a metric scores in an image
            that is not prepared, or lacks a package here.
    """
    away = [name for one in run_task.scoring_images for name in one.metrics]
    if away and not images:
        what = f"metric '{away[0]}' scores in an image, which this command does not start"
        raise UserError(what, remedy=f"run `hpcbench score {path} --metrics {away[0]} …`")
    metrics = plan_metrics.load_metrics(run_task)
    plan_metrics.check_here(run_task, metrics)
    answered = _Answered(run_task, path)
    subject = Subject(run_task, metrics, answered, more_columns=tuple(columns), images=images)
    place = ScoresFiles(folder, run_task.name)
    change = update(subject, place)
    of_run = plan_metrics.run_metrics(run_task)
    figures = empty_figures(of_run, "a file of answers does not have it")
    reading = reading_of(run_task.ml_task)
    return Scored(run_task, metrics, place, reading=reading, of_run=of_run, figures=figures), change


def run_task_of(
    catalog: Catalog, ml_task: str, dataset: Dataset, metrics: Sequence[str] = ()
) -> ResolvedRunTask:
    """A run task for a file of answers; without names, its metrics are those of the ML task."""
    definition = catalog.get(MLTask, ml_task)
    names = metrics or definition.default_metrics or definition.metrics
    every = [metric_of(catalog, name) for name in names]
    return ResolvedRunTask(
        task=RunTask(name=ml_task, ml_task=ml_task, model="answers", dataset=dataset.name),
        ml_task=definition,
        model=Model(name="answers", source="/", engine="none"),
        dataset=dataset,
        prompt=Prompt(name="none", user=""),
        metrics=tuple(
            one.model_copy(update={"image": one.image or definition.image}) for one in every
        ),
    )


def metric_of(catalog: Catalog, name: str) -> Metric:
    """A metric's definition, or, without one, the plugin of that name with its defaults."""
    if not catalog.files("metrics", name) and plugins.find("metrics", name) is not None:
        return Metric(name=name, plugin=name)
    return catalog.get(Metric, name)


def dataset_of(catalog: Catalog, named: str, annotations: str, split: str | None) -> Dataset:
    """A dataset by its definition's name or file, or a folder; fetched if it is not on this machine."""
    if Path(named).is_dir():
        source = str(Path(named).resolve())
        dataset = Dataset(name="folder", source=source, annotations=annotations)
    elif named.endswith(".yaml"):
        dataset = with_absolute_paths(*load_definition(Dataset, Path(named)))
    else:
        dataset = with_absolute_paths(*catalog.get_with_source(Dataset, named))
    site = user_site() or Site(name="default")
    dataset = Cache(home(site) / "cache", site).local(dataset)
    return dataset.model_copy(update={"split": split or dataset.split})


@dataclass(frozen=True, slots=True)
class _Answered:
    """The samples of a dataset with the answers of a file; each iteration reads the samples again."""

    run_task: ResolvedRunTask
    path: Path

    def __iter__(self) -> Iterator[tuple[Sample, Answer | None]]:
        iterator = open_dataset(self.run_task.dataset)
        count = iterator.count()
        named, listed = read_answers(self.path, rows=named_by_row(iterator))
        if listed and len(listed) != count:
            what = f"{len(listed)} rows without an id, but {count} samples"
            remedy = "add a column `id`, or name the right split"
            raise UserError(Problem(what, str(self.path), remedy=remedy))
        for number, sample in enumerate(iterator.iter(0, count)):
            yield sample, listed[number] if listed else named.pop(sample.id, None)
        if named:
            what = f"{len(named)} answers belong to no sample of the dataset, e.g. '{min(named)}'"
            raise UserError(Problem(what, str(self.path), remedy="check the split and the dataset"))


def named_by_row(iterator: DatasetIterator) -> bool:
    """Whether the dataset names its samples by their row in a table, counted from 1."""
    return isinstance(iterator, TableDataset) and iterator.mapping.id == "#"


def read_answers(
    path: Path, *, rows: bool, once: bool = False
) -> tuple[dict[str, Answer], list[Answer]]:
    """Answers by sample, the first of two to one sample; or in order, where no answer names its sample.

    Args:
        path: the file.
        rows: whether samples are named by their row from 1; then ids of v0.1, rows from 0, are translated.
        once: whether a second answer to a sample is a mistake.

    Raises:
        UserError: the file cannot be read, or a line is no answer.
    """
    text = read_text(path)
    table = path.suffix.lower() == ".csv"
    shift = rows and table and tuple(text.partition("\n")[0].strip().split(";")) == V01
    named: dict[str, Answer] = {}
    listed: list[Answer] = []
    for number, row in csv_rows(text, path) if table else jsonl_rows(text, path):
        name = next((row[key] for key in NAMES if key in row), None)
        nameless = name is None and not (table and not named)
        if nameless or not ({*ANSWERS, "outcome"} & row.keys()):
            what = f"needs {NAMES[1]} and one of {', '.join(ANSWERS)}"
            raise UserError(Problem(what, str(path), number))
        if name is not None and shift:
            name = _row_of(name, path, number)
        if name is None:
            listed.append(_answer(str(number), row))
        else:
            if once and str(name) in named:
                raise UserError(Problem(f"a second answer to '{name}'", str(path), number))
            named.setdefault(str(name), _answer(str(name), row))
    return named, listed


def _row_of(name: str, path: Path, line: int) -> str:
    """Name of the sample with a row number of v0.1, which counts from 0.

    Raises:
        UserError: it is no number.
    """
    if not (name.isascii() and name.isdigit()):
        what = f"id {name!r} is not the number of a row of annotation.csv"
        raise UserError(Problem(what, str(path), line))
    return str(int(name) + 1)


def _answer(name: str, row: Mapping[str, Any]) -> Answer:
    if "times" in row:
        return Answer.of(Response.from_json(row), measured=True)
    answer = next((row[key] for key in ANSWERS if key in row), None)
    if answer is None:
        return Answer(name, str(row.get("outcome", "failed")), None)
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return Answer(name, str(row.get("outcome", "ok")), text)


def _print(table: Scores) -> None:
    from rich.console import Console
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("metric", "value", "95 % interval", "n", "documents"):
        out.add_column(title, justify="left" if title == "metric" else "right")
    for name, entry in table.metrics.items():
        if entry is None:
            out.add_row(name, "–", "–", "0", "0")
            continue
        interval = "–" if entry.low is None else f"{entry.low:.4f} to {entry.high:.4f}"
        out.add_row(name, f"{entry.value:.4f}", interval, str(entry.n), str(entry.clusters))
    console = Console(highlight=False)
    console.print(out)
    console.print(f"samples: {table.counts.sentence()}")
    for fault in table.faults:
        console.print(f"samples without a score of {fault.metric}: {fault.count}; {fault.message}")
