"""Lists of datasets with their facts, the page of shipped benchmarks, and `hpcbench reproduce`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from hpcbench.cli.output import console, print_json, say, table
from hpcbench.errors import UserError, unknown
from hpcbench.number_format import DASH, many
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.cross_checks import unfit
from hpcbench.registry.source import Source
from hpcbench.schema.dataset import Dataset, Published
from hpcbench.schema.model import Model, ModelChoice
from hpcbench.schema.names import id_of
from hpcbench.schema.run_task import RunTask

PAGE = """\
# Benchmarks

`hpcbench registry list datasets --markdown` makes this page from `registries/datasets/`; do not edit it.

`hpcbench registry list datasets` filters: `--task vqa`, `--language en`, `--licence mit`, `--max-gb 5`. \
`hpcbench registry show datasets/NAME` prints a whole definition with its notes: sources, layout, scoring.

Datasets without a number under *GB* have an unknown size. **Not read** names what could not be read at its \
source: check it before you rely on it. No data of these benchmarks is shipped; licences are as their \
publishers state them.
"""

HERE = {
    "all": "runs it, in an image of its own",
    "parts": "scores parts of it",
    "nothing": "does not score it",
}
"""How the page says what hpcbench does about the official score."""

AFTER = """\
## Published scores

```sh
hpcbench reproduce chartqa --model Qwen/Qwen2.5-VL-3B-Instruct --dry-run
```

`hpcbench reproduce NAME --model M` runs the run task of a published score, as far as its source states the \
conditions, and submits it as `hpcbench submit` does. The report of any experiment shows published scores of \
its models on its datasets beside its own: the conditions of both, and whether the difference is more than \
noise (an interval of 95 %, [how](decisions/0125-noise-of-a-published-score.md)). hpcbench refuses a score \
that the program of its publisher or a judge made, or that is of answers which are not public, with one line.

"""


# --- lists ----------------------------------------------------------------------------------------------


def list_datasets(catalog: Catalog, arguments: argparse.Namespace) -> int:
    """`hpcbench registry list datasets`, with its filters."""
    every = [catalog.get_with_source(Dataset, name) for name in catalog.names("datasets")]
    found = [one for one in every if _wanted(one[0], arguments)]
    if arguments.markdown:
        print(page([dataset for dataset, _ in found]), end="")
        return 0
    rows = [_row(catalog, *one) for one in found]
    if arguments.json:
        print_json(rows)
        return 0
    shown = table(
        "definition", "task", "language", "licence", "samples", "GB", "from", "description"
    )
    for row in rows:
        mark = " + overlay" if row["overlays"] else ""
        shown.add_row(
            f"datasets/{row['name']}", row["ml_task"] or DASH, ", ".join(row["languages"]) or DASH,
            row["licence"] or DASH, str(row["samples"] or DASH), _size(row["size_gb"]),
            f"{row['from']}{mark}", row["description"],
        )  # fmt: skip
    console().print(shown)
    unsized = sum(one.size_gb is None for one, _ in every)
    if arguments.max_gb is not None and unsized:
        say(f"{many(unsized, 'dataset')} of unknown size left out")
    return 0


def _wanted(dataset: Dataset, arguments: argparse.Namespace) -> bool:
    licence, most = arguments.licence, arguments.max_gb
    return (
        arguments.ml_task in (None, dataset.ml_task)
        and (arguments.language is None or arguments.language in dataset.languages)
        and (licence is None or licence.lower() in dataset.licence.lower())
        and (most is None or (dataset.size_gb is not None and dataset.size_gb <= most))
    )


def _row(catalog: Catalog, dataset: Dataset, source: Source) -> dict[str, Any]:
    return {
        "kind": "datasets",
        "name": dataset.name,
        "from": catalog.label(source.path),
        "overlays": len(catalog.files("datasets", dataset.name)) - 1,
        "description": dataset.description,
        "ml_task": dataset.ml_task,
        "languages": list(dataset.languages),
        "licence": dataset.licence,
        "samples": dataset.samples,
        "pages": dataset.pages,
        "size_gb": dataset.size_gb,
        "unread": list(dataset.unread),
        "published": len(dataset.published),
    }


def _size(gigabytes: float | None) -> str:
    return DASH if gigabytes is None else f"{gigabytes:g}"


# --- the page -------------------------------------------------------------------------------------------


def page(datasets: Sequence[Dataset]) -> str:
    """The page of all public benchmarks among some datasets, in Markdown."""
    public = sorted((one for one in datasets if one.read), key=lambda one: one.name)
    lines = [PAGE, "| name | task | languages | licence | samples | GB | published scores |"]
    lines.append("|---|---|---|---|--:|--:|--:|")
    for one in public:
        cells = (
            f"[`{one.name}`](#{one.name})", one.ml_task or DASH, ", ".join(one.languages) or DASH,
            one.licence or DASH, f"{one.samples:,}" if one.samples else DASH, _size(one.size_gb),
            str(len(one.published) or DASH),
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    lines += ["", AFTER, "## Each benchmark", ""]
    for one in public:
        lines += _section(one)
    return "\n".join(lines).rstrip() + "\n"


def _section(one: Dataset) -> Iterator[str]:
    yield from (f"### {one.name}", "", one.description, "")
    yield f"- Data: `{one.source}`" + (f", {one.pages:,} pages" if one.pages else "")
    if one.splits:
        yield f"- Splits: {', '.join(one.splits)}; used here: {one.split or 'all'}"
    if one.scorer:
        yield f"- **The official score is made by {one.scorer}**; hpcbench {HERE[one.scored_here]}"
    yield f"- Read: {'; '.join(one.read)}"
    yield from (f"- **Not read**: {text}" for text in one.unread)
    if one.published:
        yield from ("", "| model | metric | published | of | samples | source |")
        yield "|---|---|--:|--:|--:|---|"
    for score in one.published:
        cells = (
            score.model, score.metric or score.program, f"{score.value:g}", f"{score.of:g}",
            str(score.samples or DASH), score.source,
        )  # fmt: skip
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- reproduce ------------------------------------------------------------------------------------------


def reproduce(arguments: argparse.Namespace) -> int:
    """`hpcbench reproduce NAME --model M`: submit the run task of a published score."""
    from hpcbench.cli.submit import submit

    catalog = Catalog(arguments.registry)
    if not catalog.files("datasets", arguments.name):
        raise UserError(unknown("dataset", arguments.name, catalog.names("datasets")))
    dataset, source = catalog.get_with_source(Dataset, arguments.name)
    weights = _weights(catalog, arguments.model)
    one = _chosen(catalog, dataset, source, arguments.model, weights)
    name = f"reproduce-{id_of(dataset.name)}"
    plan: dict[str, Any] = {"schema_version": 1, "name": name, "run_tasks": [one.run_task]}
    task = catalog.get(RunTask, str(one.run_task))
    of_task = task.model.name if isinstance(task.model, ModelChoice) else task.model
    if of_task != arguments.model:
        own = task.model_dump(mode="json", exclude_unset=True, exclude={"schema_version"})
        plan["run_tasks"] = [{**own, "model": arguments.model}]
    unstated = [what for what in ("prompt", "generation", "images") if what not in one.conditions]
    say(f"published: {one.model} {one.value:g} of {one.of:g} by {one.metric} ({one.source})")
    if unstated:
        say(f"not published, so chosen here: {', '.join(unstated)}")
    with tempfile.TemporaryDirectory(prefix="hpcbench-") as folder:
        arguments.plan = Path(folder) / f"{name}.yaml"
        text = yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=110)
        arguments.plan.write_text(text, encoding="utf-8")
        return submit(arguments)


def _weights(catalog: Catalog, model: str) -> str:
    """The hub's name of a model's weights; empty: it has no definition, or its weights are elsewhere."""
    if not catalog.files("models", model):
        return ""
    source = catalog.get(Model, model).source
    return source.removeprefix("hf://").partition("@")[0] if source.startswith("hf://") else ""


def _of_split(dataset: Dataset, one: Published) -> str:
    return f" (split {one.split})" if one.split not in (None, dataset.split) else ""


def _chosen(
    catalog: Catalog, dataset: Dataset, source: Source, model: str, weights: str
) -> Published:
    """The published score of a model that can be reproduced here.

    Raises:
        UserError: there is none.
    """
    own = [
        (index, one) for index, one in enumerate(dataset.published) if one.model in (model, weights)
    ]
    for index, one in own:
        if one.metric is not None and one.run_task is not None:
            if cause := unfit(catalog, dataset, one):
                raise UserError(source.problem(("published", index, "run_task"), cause))
            return one
    able = sorted({one.model for one in dataset.published if one.run_task is not None})
    if own:
        index, one = own[0]
        why = (
            f"no metric of hpcbench makes it, but {one.program}"
            if one.metric is None
            else f"no run task has its conditions{_of_split(dataset, one)}"
        )
        what = f"the published score of '{model}' on '{dataset.name}' cannot be reproduced: {why}"
        remedy = f"models that can: {', '.join(able)}" if able else "read the dataset's `notes`"
        raise UserError(source.problem(("published", index), what, remedy))
    if not dataset.published:
        what = f"dataset '{dataset.name}' has no published score"
        raise UserError(source.problem((), what, "add `published:` with its source"))
    what = unknown("published score of model", model, able, of=f"dataset '{dataset.name}'")
    raise UserError(source.problem(("published",), what))
