"""Scoring answers without a cluster: `python -m hpcbench.tasks.vqa --dataset DATASET --responses FILE`.

The dataset is a document by name or file, or a folder with a table of annotations. Responses are JSONL,
either hpcbench's own or objects with `id` and `text`, or CSV with `id` and one of `answer`, `model_answer`,
`prediction`, `text`; delimiter `,` or `;`. Scores are the same as `hpcbench submit` would report.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench import evaluation
from hpcbench.data.cache import Cache
from hpcbench.data.datasets import open_dataset
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.experiment.layout import home
from hpcbench.registry.catalog import Catalog, load_document, user_site
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.schema.documents import Dataset, Metric, MLTask, Model, Prompt, RunTask, Site
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Response, Sample, Times

ANSWERS = ("text", "answer", "model_answer", "prediction")
NAMES = ("sample_id", "id")


def main(ml_task: str, argv: Sequence[str]) -> int:
    """Score a file of responses; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m hpcbench.tasks.{ml_task}",
        description=f"Score answers of ML task {ml_task}.",
    )
    parser.add_argument("--dataset", required=True, help="document's name or file, or a folder")
    parser.add_argument(
        "--annotations", default="annotations.jsonl", help="table inside a folder (%(default)s)"
    )
    parser.add_argument("--split", help="only samples of this split")
    parser.add_argument("--responses", required=True, type=Path, help="JSONL or CSV of answers")
    parser.add_argument("--metrics", help="names, parted by commas; none: the task's own")
    parser.add_argument(
        "--registry", type=Path, action="append", default=[], help="further registry"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    try:
        table = _scored(ml_task, arguments)
    except HpcbenchError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command line of its own
        return error.exit_code
    if arguments.json:
        print(json.dumps(table, ensure_ascii=False, indent=2))  # noqa: T201 - as above
    else:
        _print(table)
    return 0


def _scored(ml_task: str, arguments: argparse.Namespace) -> dict[str, Any]:
    catalog = Catalog(arguments.registry)
    document = catalog.get(MLTask, ml_task)
    wanted = arguments.metrics.split(",") if arguments.metrics else ()
    names = wanted or document.default_metrics or document.metrics
    dataset = _dataset(catalog, arguments)
    run_task = ResolvedRunTask(
        task=RunTask(name=ml_task, ml_task=ml_task, model="answers", dataset=dataset.name),
        ml_task=document,
        model=Model(name="answers", source="/", engine="none"),
        dataset=dataset,
        prompt=Prompt(name="none", user=""),
        metrics=tuple(catalog.get(Metric, name) for name in names),
    )
    iterator = open_dataset(dataset)
    answers = dict(read_responses(arguments.responses))
    samples = list(iterator.iter(0, iterator.count()))
    strangers = answers.keys() - {sample.id for sample in samples}
    if strangers:
        raise UserError(
            Problem(
                f"{len(strangers)} answers are of no sample of the dataset, e.g. '{min(strangers)}'",
                str(arguments.responses),
                remedy="another split or dataset?",
            )
        )
    pairs: list[tuple[Sample, Response | None]] = [(one, answers.get(one.id)) for one in samples]
    metrics = evaluation.load_metrics(run_task)
    return evaluation.tabulate(
        run_task, list(evaluation.score(run_task, pairs, metrics)), metrics, 0
    )


def _dataset(catalog: Catalog, arguments: argparse.Namespace) -> Dataset:
    named = arguments.dataset
    if Path(named).is_dir():
        dataset = Dataset(
            name="folder", source=str(Path(named).resolve()), annotations=arguments.annotations
        )
    elif named.endswith(".yaml"):
        dataset = with_absolute_paths(*load_document(Dataset, Path(named)))
    else:
        dataset = with_absolute_paths(*catalog.get_with_source(Dataset, named))
    site = user_site() or Site(name="default")
    dataset = Cache(home(site) / "cache", site).local(dataset)
    return dataset.model_copy(update={"split": arguments.split or dataset.split})


def read_responses(path: Path) -> Iterator[tuple[str, Response]]:
    """Sample id and answer of each line; of two answers to one sample the first counts.

    Raises:
        UserError: the file cannot be read, or a line is no answer.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(Problem(f"cannot be read: {error}", str(path))) from error
    rows = _csv(text) if path.suffix.lower() == ".csv" else _jsonl(text, path)
    seen: set[str] = set()
    for number, row in rows:
        name = next((row[key] for key in NAMES if key in row), None)
        if name is None or not ({*ANSWERS, "outcome"} & row.keys()):
            raise UserError(
                Problem(f"needs {NAMES[1]} and one of {', '.join(ANSWERS)}", str(path), number)
            )
        if str(name) not in seen:
            seen.add(str(name))
            yield str(name), _response(str(name), row)


def _csv(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    head = text.partition("\n")[0]
    reader = csv.DictReader(text.splitlines(keepends=True), delimiter=";" if ";" in head else ",")
    for row in reader:
        yield reader.line_num, row


def _jsonl(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(Problem(f"not JSON: {error}", str(path), number)) from error
        if not isinstance(row, dict):
            raise UserError(Problem("not a JSON object", str(path), number))
        yield number, row


def _response(name: str, row: Mapping[str, Any]) -> Response:
    if "outcome" in row:
        return Response.from_json(row)
    answer = next(row[key] for key in ANSWERS if key in row)
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return Response(name, "ok", text, None, None, Times(0, 0, None, (), 0), 1, ())


def _print(table: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("metric", "value", "95 % interval", "n", "documents"):
        out.add_column(title, justify="left" if title == "metric" else "right")
    for name, entry in table["metrics"].items():
        if entry is None:
            out.add_row(name, "–", "–", "0", "0")
            continue
        interval = "–" if entry["low"] is None else f"{entry['low']:.4f} to {entry['high']:.4f}"
        out.add_row(
            name, f"{entry['value']:.4f}", interval, str(entry["n"]), str(entry["clusters"])
        )
    console = Console(highlight=False)
    console.print(out)
    console.print(
        f"{table['answered']} of {table['asked']} samples answered, {table['unread']} not read"
    )
