"""Answers of VLMHyperBench v0.1: a CSV for each run, read as an experiment and written from one.

    DATASET_FRAMEWORK_MODEL_TASK_answers_20250124_125639.csv        id;model_answer

UTF-8 with a byte order mark, `;` between columns. An id is the number of a row of `annotation.csv`, from 0.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hpcbench.data.datasets import open_dataset, samples
from hpcbench.data.table import TableDataset
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment, home
from hpcbench.files.atomic import replacing
from hpcbench.interchange.imports import ImportOptions, flat, make
from hpcbench.interchange.kit_results import KitRun, KitSample, KitTask
from hpcbench.plugins import DatasetIterator
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.legacy import AnsweredRow
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Response, Sample
from hpcbench.schema.site import Site
from hpcbench.tasks.alone import V01, metric_of, named_by_row, read_answers

FRAMEWORKS = {"huggingface": "Hugging Face", "vllm": "vLLM", "sglang": "SGLang"}
"""Engine → its name in v0.1."""

TASKS = {"vqa": "VQA", "ocr": "OCR", "kie": "KIE"}
"""ML task → its name in v0.1, if that is another one."""

BY_ROW = "row"
"""`ids` in the details of an import: its samples are named by their row, from 1."""

Note = Callable[[str], None]


# --- reading ------------------------------------------------------------------------------------------


def is_answers(path: Path) -> bool:
    """Whether a file begins as v0.1's answers do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.readline(200).removeprefix(b"\xef\xbb\xbf").strip()
    return head == ";".join(V01).encode()


def experiments_of(
    rows: Sequence[AnsweredRow], catalog: Catalog, site: Site, note: Note, *, dry_run: bool = False
) -> list[Experiment]:
    """An experiment of each row, with its answers scored; all files are read before the first is made.

    Args:
        rows: the answers.
        catalog: has the ML tasks and metrics.
        site: gives the folder, group and umask of experiments.
        note: receives remarks, a line each.
        dry_run: only read and check.

    Raises:
        UserError: of all rows, what cannot be read.
    """
    found, problems = list[tuple[KitRun, ImportOptions]](), list[Problem]()
    for row in rows:
        try:
            ml_task = catalog.get(MLTask, row.ml_task)
            names = row.metrics or ml_task.default_metrics or ml_task.metrics
            metrics = tuple(metric_of(catalog, name) for name in names)
            how = ImportOptions(ml_task, metrics, name=row.name, dataset=row.dataset.name)
            found.append((read(row, note), how))
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(*dict.fromkeys(problems))
    if dry_run:
        return []
    return [make(run, how, home(site), site, note) for run, how in found]


def read(row: AnsweredRow, note: Note) -> KitRun:
    """The answers of an earlier run beside their samples.

    Args:
        row: the answers and the dataset, which is on this machine.
        note: receives remarks, a line each.

    Raises:
        UserError: a file cannot be read, or no answer belongs to a sample of the dataset.
    """
    iterator = open_dataset(row.dataset)
    by_row = named_by_row(iterator)
    answers, _ = read_answers(row.answers, rows=by_row)
    known = {sample.id for sample in _all(iterator)}
    others = answers.keys() - known
    if len(others) == len(answers):
        what = f"none of {len(answers)} answers belongs to a sample of dataset '{row.dataset.name}'"
        raise UserError(Problem(what, str(row.answers), remedy="check the dataset and its split"))
    if others:
        what = f"answers belong to no sample of dataset '{row.dataset.name}', and are left out"
        note(f"{row.answers}: {len(others)} {what}")
    texts = {name: answer.text for name, answer in answers.items()}
    files = [iterator.path] if isinstance(iterator, TableDataset) else []
    return KitRun(
        kit="v01",
        version="0.1",
        model=row.model,
        tasks=(KitTask(row.name, partial(_samples, row, texts)),),
        files=(row.answers, *(path for path in files if path.is_file())),
        details={
            "ids": BY_ROW if by_row else "sample",
            "framework": row.framework or _framework_in(row.answers.name),
        },
    )


def _framework_in(name: str) -> str:
    """The framework that the name of a file of answers contains; empty: none that v0.1 knew."""
    return next((one for one in FRAMEWORKS.values() if f"_{one}_" in name), "")


def _samples(row: AnsweredRow, texts: dict[str, str | None]) -> Iterator[KitSample]:
    for sample in _all(open_dataset(row.dataset)):
        answer = texts.get(sample.id)
        yield KitSample(
            id=sample.id,
            answer=answer,
            references=sample.references,
            question=str(sample.fields.get("question", "")),
            document=sample.document,
            outcome="ok" if answer is not None else "failed",
            metadata=sample.metadata,
        )


def _all(iterator: DatasetIterator) -> Iterator[Sample]:
    count = iterator.count()
    return samples(iterator, [(0, count)], 0, count, images=False)


# --- writing ------------------------------------------------------------------------------------------


def write_answers(
    experiment: Experiment, out: Path, run_tasks: Sequence[str], note: Note
) -> Iterator[tuple[Path, int]]:
    """Write the answers of an experiment, a file for each run task.

    Args:
        experiment: the experiment.
        out: the folder; created if missing.
        run_tasks: only these; empty: all.
        note: receives what v0.1's form cannot hold, a line each.

    Yields:
        Each file, and its number of answers.

    Raises:
        UserError: no such run task, or its dataset no longer exists.
        OSError: a file cannot be written.
    """
    experiment.check_run_tasks(run_tasks)
    known = [one.name for one in experiment.resolved.run_tasks]
    chosen = [experiment.run_task(name) for name in dict.fromkeys(run_tasks or known)]
    names = {one.name: _file_name(experiment, one) for one in chosen}
    taken = Counter(names.values())
    for one in chosen:
        name = names[one.name]
        folder = out / one.name if taken[name] > 1 else out
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / name) as beside:
            count = _write(experiment, one, beside, note)
        yield folder / name, count


def _write(experiment: Experiment, run_task: ResolvedRunTask, path: Path, note: Note) -> int:
    iterator = open_dataset(run_task.dataset, experiment.cache_dir)
    by_row = named_by_row(iterator) or _imported(experiment).get("ids") == BY_ROW
    chosen = experiment.chosen(run_task.name)
    written, without, endings = 0, 0, Counter[str]()
    with path.open("w", encoding="utf-8-sig", errors="backslashreplace", newline="") as file:
        # With \r\n as the line's end, a cell that contains either character gets quotes.
        rows = csv.writer(file, delimiter=";", lineterminator="\r\n")
        rows.writerow(V01)
        for shard, answers in answers_of(experiment, run_task.name):
            for sample in samples(iterator, chosen, shard.start, shard.stop, images=False):
                answer: Response | None = answers.get(sample.id)
                if answer is None or answer.text is None:
                    without += 1
                    continue
                endings[answer.outcome] += answer.outcome != "ok"
                rows.writerow([int(sample.id) - 1 if by_row else sample.id, answer.text])
                written += 1
    if without:
        note(f"{run_task.name}: {without} samples have no answer, and no row")
    for outcome, count in endings.items():
        if count:
            note(f"{run_task.name}: {count} answers are {outcome}, which v0.1's form cannot show")
    return written


def _imported(experiment: Experiment) -> Mapping[str, Any]:
    """Kit and details of imported answers; empty for other experiments."""
    found = experiment.manifest.imported
    return {"kit": found.get("kit"), **(found.get("details") or {})} if found else {}


def _framework(experiment: Experiment, run_task: ResolvedRunTask) -> str:
    """v0.1's name of the engine; of imported answers the original one or, if that is unknown, their kit."""
    if imported := _imported(experiment):
        name = str(imported.get("framework") or imported["kit"])
        return name if name in FRAMEWORKS.values() else flat(name)
    engine = run_task.model.engine or ""
    return FRAMEWORKS.get(engine, engine)


def _file_name(experiment: Experiment, run_task: ResolvedRunTask) -> str:
    """The name that v0.1 would give: dataset, framework, model without its publisher, task, time."""
    task = run_task.ml_task.name
    model = run_task.model.name.rpartition("/")[2]
    return "_".join(
        [
            flat(run_task.dataset.name), _framework(experiment, run_task), flat(model),
            TASKS.get(task, task), "answers", f"{experiment.created:%Y%m%d_%H%M%S}.csv",
        ]
    )  # fmt: skip
