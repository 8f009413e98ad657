"""Converts plans of VLMHyperBench v0.1: its `user_config.csv`, and `vlm_base.csv` beside it.

Each row is one run task, or scores the answers of an earlier run. All CSV of v0.1 are UTF-8 with or without
BOM; `;` separates columns, lists have Python's syntax. Everything is read and checked before anything is
written; a remark reports every value that cannot be converted, none is dropped silently.
"""

from __future__ import annotations

import ast
import glob
import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

import yaml

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.files.user import read_text
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.collections import csv_rows, literal, read_collection
from hpcbench.registry.fitting_metrics import metrics_of
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.forms import FORMS
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.names import NAME, is_name
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import PromptEntry

COLUMNS = (
    "dataset", "task", "framework", "model_name", "system_prompt", "prompt_collection", "metrics",
    "only_evaluate_metrics", "metrics_aggregators", "filter_doc_class", "filter_question_type",
)  # fmt: skip
BASE_COLUMNS = ("framework", "model_family", "model_name", "docker_image")
WRAPPER_COLUMNS = ("git_python_package", "python_package", "module", "class_name")
"""Columns of vlm_base.csv that name v0.1's own wrapper of a model."""
TASKS = {"vqa": "vqa", "ocr": "ocr", "kie": "kie", "classification": "classification"}
ENGINES = {"hugging face": "huggingface", "vllm": "vllm", "sglang": "sglang"}
METRICS = {
    "cer": "cer",
    "wer": "wer",
    "bleu": "bleu",
    "anls": "anls",
    "em": "exact_match",
    "exact match": "exact_match",
}
ORGANISATIONS = {
    "qwen": "Qwen",
    "internvl": "OpenGVLab",
    "minicpm": "openbmb",
    "deepseek": "deepseek-ai",
}
"""Prefix of a model's name → its publisher."""

_FILE = re.compile(r"\S+\.(txt|md)", re.IGNORECASE)
"""A cell that contains a file's name instead of text."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Results of an import."""

    plan: Path | None
    """The plan; None: no row runs a model."""
    written: tuple[Path, ...]
    """Every file, including the plan."""
    remarks: tuple[str, ...]
    """Values that were not converted, or that the user has to check."""


@dataclass(frozen=True, slots=True)
class AnsweredRow:
    """A row that only scores the answers of an earlier run."""

    name: str
    """Name of the experiment, and of its run task."""
    ml_task: str
    """Name of the ML task."""
    model: str
    """Name of the model."""
    dataset: Dataset
    """The samples that it asked about."""
    metrics: tuple[str, ...]
    """Names of metrics; empty: those of the ML task."""
    answers: Path
    """CSV of the answers."""
    framework: str = ""
    """v0.1's name of the engine that gave them; empty: unknown."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of user_config.csv and its place."""

    file: Path
    line: int
    cells: Mapping[str, str]

    def problem(self, message: str, remedy: str | None = None) -> Problem:
        return Problem(message, str(self.file), self.line, None, remedy)

    def words(self, column: str) -> list[str]:
        """A cell with a list in Python's syntax.

        Raises:
            UserError: it is no list.
        """
        text = self.cells[column].strip()
        try:
            value = ast.literal_eval(text) if text else []
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            value = None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise UserError(
                self.problem(
                    f"{column}: {text[:60]!r} is not a list of texts",
                    "write a list such as ['CER']",
                )
            )
        return value

    def check(self) -> None:
        """Check the cells that become names and paths.

        Raises:
            UserError: all cells that cannot.
        """
        problems = []
        for column in ("dataset", "model_name"):
            if not is_name(self.cells[column]):
                what = f"{column}: must be {FORMS[NAME]}, not {self.cells[column]!r:.60}"
                problems.append(self.problem(what))
        for column in ("dataset", "prompt_collection"):
            if ".." in Path(self.cells[column]).parts:
                what = f"{column}: {self.cells[column]!r:.60} leads out of v0.1's folder"
                problems.append(self.problem(what, "write a path without `..`"))
        scores_only = self.cells["only_evaluate_metrics"]
        if scores_only.lower() not in ("true", "false", ""):
            what = f"only_evaluate_metrics: must be True or False, not {scores_only!r:.60}"
            problems.append(self.problem(what))
        if problems:
            raise UserError(*problems)


@dataclass(slots=True)
class _Import:
    """Definitions and remarks, gathered row by row."""

    data_dirs: Path | None
    catalog: Catalog
    base: Mapping[tuple[str, str], Mapping[str, str]]
    """Framework, or empty without one, and a model's name → its entry in v0.1."""
    definitions: dict[str, tuple[Definition, str]] = field(default_factory=dict)
    run_tasks: list[dict[str, Any]] = field(default_factory=list)
    answered: list[AnsweredRow] = field(default_factory=list)
    remarks: dict[str, None] = field(default_factory=dict)

    def add(self, row: _Row) -> None:
        """Turn one row into a run task and its definitions.

        Raises:
            UserError: a cell cannot be understood.
        """
        cells = row.cells
        ml_task = TASKS.get(cells["task"].lower())
        if ml_task is None:
            self.remark(f"{unknown('task', cells['task'], [*TASKS])}: row {row.line} is left out")
            return
        if row.words("metrics_aggregators"):
            self.remark(
                "metrics_aggregators is not converted: every report covers all samples, and `group_by` adds "
                "groups"
            )
        row.check()
        name = self._unique(_slug(f"{cells['dataset']}-{cells['model_name']}-{ml_task}"))
        metrics = self._metrics(row, ml_task)
        if cells["only_evaluate_metrics"].lower() == "true":
            self._add_answers(row, name, ml_task, metrics)
            return
        model, dataset = self._model(row), self._dataset(row)
        task: dict[str, Any] = {
            "name": name,
            "ml_task": ml_task,
            "model": model,
            "dataset": dataset.name,
            "prompt": self._prompt(row),
        }
        if metrics:
            task["metrics"] = metrics
        self.run_tasks.append(task)

    def _add_answers(self, row: _Row, name: str, ml_task: str, metrics: Sequence[str]) -> None:
        """Keep a row that only scores answers, if they exist."""
        pattern = "_".join(
            [
                *(glob.escape(row.cells["dataset"]), "*", glob.escape(row.cells["model_name"])),
                f"{glob.escape(row.cells['task'])}_answers_*.csv",
            ]
        )
        folder = Path("ModelsAnswers")
        found = sorted((self.data_dirs / folder).rglob(pattern)) if self.data_dirs else []
        if not found:
            where = "" if self.data_dirs else " (name v0.1's folder with --data-dirs)"
            self.remark(
                f"no answers {folder / pattern}{where}: row {row.line}, which only scores them, is left out; "
                f"score another file with: hpcbench score ANSWERS.csv --ml-task {ml_task} --dataset DATASET"
            )
            return
        newest = max(found, key=lambda path: path.stem.rpartition("_answers_")[2])
        if len(found) > 1:
            self.remark(f"row {row.line} has {len(found)} files of answers: the newest is {newest}")
        model, dataset = self._full_name(row), self._dataset(row)
        self.answered.append(
            AnsweredRow(
                name,
                ml_task,
                model,
                dataset,
                tuple(metrics),
                newest.absolute(),
                row.cells["framework"],
            )
        )

    def remark(self, text: str) -> None:
        self.remarks.setdefault(text)

    def leave_out(self, columns: Set[str], path: Path) -> None:
        """Say which columns of a file are not converted."""
        for name in sorted(columns):
            self.remark(f"column '{name}' of {path.name} is not one of v0.1, and is left out")

    def _put(self, kind: str, definition: Definition, row: _Row, *others: str) -> str:
        """Keep a definition; returns its name, another one where a different definition has the name.

        Args:
            kind: its kind.
            definition: the definition.
            row: its source.
            others: more specific names, to try first.
        """
        names = (definition.name, *others)
        numbered = (f"{names[-1]}-{number}" for number in count(2))
        for name in chain(names, numbered):
            wanted = definition.model_copy(update={"name": name})
            there = self.definitions.setdefault(
                f"{kind}/{name}", (wanted, f"Imported from {row.file.name}, row {row.line}")
            )
            if there[0] == wanted:
                return name
        raise AssertionError("numbers have no end")

    def _full_name(self, row: _Row) -> str:
        """The model's name with its publisher, as far as known."""
        name = row.cells["model_name"]
        organisation = next(
            (org for head, org in ORGANISATIONS.items() if name.lower().startswith(head)), None
        )
        return f"{organisation}/{name}" if organisation and "/" not in name else name

    def _model(self, row: _Row) -> str:
        framework, name = row.cells["framework"], row.cells["model_name"]
        engine = ENGINES.get(framework.lower())
        if engine is None:
            raise UserError(
                row.problem(unknown("framework", framework, ["Hugging Face", "vLLM", "SGLang"]))
            )
        known = self.base.get((framework.lower(), name)) or self.base.get(("", name), {})
        others = [one for (_, model), one in self.base.items() if model == name]
        if not known:
            lacks = "is not in vlm_base.csv"
            if others:
                whose = ", ".join(one["framework"] for one in others)
                lacks = f"is in vlm_base.csv for {whose}, not for {framework}"
            self.remark(f"model {name} {lacks}: its definition names no image")
        elif known.get("git_python_package"):
            self.remark(
                "git_python_package, module and class_name of vlm_base.csv are v0.1's own wrappers; "
                "hpcbench does not need them, since it serves models through its engines"
            )
        full = self._full_name(row)
        image = known.get("docker_image")
        return self._put(
            "models",
            Model(
                name=full,
                family=next((one["model_family"] for one in (known, *others) if one), ""),
                source=f"hf://{full}",
                engine=engine,
                image=f"docker://{image}" if image else None,
            ),
            row,
            f"{full}-{engine}",
        )

    def _dataset(self, row: _Row) -> Dataset:
        cells = row.cells
        where = {
            column: cells[f"filter_{column}"]
            for column in ("doc_class", "question_type")
            if cells[f"filter_{column}"]
        }
        relative = Path("Datasets") / cells["task"] / cells["dataset"]
        if self.data_dirs is None:
            self.remark(
                f"hpcbench looks for dataset {cells['dataset']} in {relative}: name another folder with "
                "--data-dirs"
            )
        source = (self.data_dirs.resolve() if self.data_dirs else Path("../../..")) / relative
        dataset = Dataset.model_validate(
            {
                "name": _slug("-".join([cells["dataset"], *where.values()])),
                "source": str(source),
                "iterator": "table",
                "annotations": "annotation.csv",
                "fields": ["question"],
                "group_by": ["doc_class", "question_type"],
                "mapping": {
                    "id": "#",
                    "images": "image_path",
                    "references": "answer",
                    "document": "image_path",
                    "fields": {"question": "question"},
                    "metadata": {"doc_class": "doc_class", "question_type": "question_type"},
                },
                "options": {"delimiter": ";", **({"where": where} if where else {})},
            }
        )
        return dataset.model_copy(update={"name": self._put("datasets", dataset, row)})

    def _prompt(self, row: _Row) -> str:
        collection, system = row.cells["prompt_collection"], self._system(row)
        prompts = self._collection(row, collection) if collection else ()
        name = _slug(Path(collection).stem if collection else "question")
        if system is not None:
            name = f"{name}-system"
        definition = Prompt(name=name, system=system, user="{{ question }}", prompts=prompts)
        return self._put("prompts", definition, row, _slug(f"{row.cells['dataset']}-{name}"))

    def _system(self, row: _Row) -> str | None:
        cell = row.cells["system_prompt"]
        if not cell:
            return None
        path = Path("SystemPrompts") / cell
        if self.data_dirs is not None and (self.data_dirs / path).is_file():
            try:
                cell = (self.data_dirs / path).read_text(encoding="utf-8-sig").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(row.problem(f"cannot read {path}: {error}")) from error
        elif _FILE.fullmatch(cell):
            self.remark(f"no such file: {path}; row {row.line} sends no system prompt")
            return None
        return literal(cell) if "{" in cell else cell

    def _collection(self, row: _Row, collection: str) -> tuple[PromptEntry, ...]:
        path = Path("PromptCollections") / row.cells["task"] / collection
        if self.data_dirs is None or not (self.data_dirs / path).is_file():
            self.remark(f"no such file: {path}; the prompt is the dataset's own question")
            return ()
        return read_collection(self.data_dirs / path)

    def _metrics(self, row: _Row, ml_task: str) -> list[str]:
        found: dict[str, None] = {}
        allowed = metrics_of(self.catalog, self.catalog.get(MLTask, ml_task))
        for name in row.words("metrics"):
            known = METRICS.get(name.lower())
            if known is None:
                self.remark(f"hpcbench has no metric {name}: row {row.line} leaves it out")
            elif known not in allowed:
                self.remark(
                    f"ML task {ml_task} has no metric {known}: row {row.line} leaves it out (it has "
                    f"{', '.join(allowed)})"
                )
            else:
                found.setdefault(known)
        return list(found)

    def _unique(self, name: str) -> str:
        taken = {task["name"] for task in self.run_tasks} | {one.name for one in self.answered}
        tried, number = name[:76], 1
        while tried in taken:
            number += 1
            tried = f"{name[:76]}-{number}"
        return tried


def import_v01(
    user_config: Path,
    out: Path,
    vlm_base: Path | None = None,
    data_dirs: Path | None = None,
    *,
    score: Callable[[Sequence[AnsweredRow]], None] = lambda rows: None,
    dry_run: bool = False,
) -> Imported:
    """Write a plan and its definitions into a new folder.

    Args:
        user_config: v0.1's user_config.csv.
        out: folder to create.
        vlm_base: v0.1's vlm_base.csv.
        data_dirs: v0.1's folder with `Datasets/`, `PromptCollections/`, `SystemPrompts/`, `ModelsAnswers/`.
        score: receives the rows that only score answers, when everything is checked, before the plan is
            written.
        dry_run: only check; write nothing.

    Raises:
        UserError: every row that cannot be understood; `out` exists. Then nothing is written.
    """
    if data_dirs is not None and not data_dirs.is_dir():
        raise UserError("no such folder", file=data_dirs, remedy="check --data-dirs")
    base: dict[tuple[str, str], Mapping[str, str]] = {}
    problems = list[Problem]()
    models = _read(vlm_base, BASE_COLUMNS) if vlm_base is not None else []
    for row in models:
        key = row.cells["framework"].lower(), row.cells["model_name"]
        if base.setdefault(key, row.cells) != row.cells:
            what = f"another row of {row.cells['framework']} {row.cells['model_name']}"
            problems.append(row.problem(what, "remove one of them"))
    gathered = _Import(data_dirs, Catalog(()), base)
    rows = _read(user_config, COLUMNS)
    gathered.leave_out(rows[0].cells.keys() - {*COLUMNS}, user_config)
    if vlm_base is not None:
        known = {*BASE_COLUMNS, *WRAPPER_COLUMNS}
        gathered.leave_out(models[0].cells.keys() - known, vlm_base)
    for row in rows:
        try:
            gathered.add(row)
        except UserError as error:
            problems.extend(error.problems)
    if not (gathered.run_tasks or gathered.answered or problems):
        what = "; ".join(["no row can be imported", *gathered.remarks])
        problems.append(Problem(what, str(user_config)))
    if gathered.run_tasks and out.exists():
        problems.append(
            Problem("exists already", str(out), remedy="name another folder with --out")
        )
    if problems:
        raise UserError(*dict.fromkeys(problems))
    texts = _texts(gathered, user_config) if gathered.run_tasks else {}
    score(gathered.answered)
    if texts and not dry_run:
        _write(out, texts)
    plan = out / PLAN if texts else None
    return Imported(plan, tuple(out / path for path in texts), tuple(gathered.remarks))


PLAN = Path("plan.yaml")


def _texts(gathered: _Import, user_config: Path) -> dict[Path, str]:
    """The plan and its definitions: path below the new folder → text."""
    plan = {"schema_version": 1, "name": _slug(user_config.stem), "run_tasks": gathered.run_tasks}
    ExperimentPlan.model_validate(plan)
    texts = {PLAN: _text(plan, f"Imported from {user_config.name}")}
    for name, (definition, origin) in gathered.definitions.items():
        data = definition.model_dump(mode="json", exclude_defaults=True)
        texts[Path("registries") / f"{name}.yaml"] = _text({"schema_version": 1, **data}, origin)
    return texts


def _read(path: Path, columns: tuple[str, ...]) -> list[_Row]:
    rows = [
        _Row(path, line, {name: value.strip() for name, value in cells.items()})
        for line, cells in csv_rows(read_text(path), path)
    ]
    if not rows:
        raise UserError("the file has no rows", file=path)
    if missing := [name for name in columns if name not in rows[0].cells]:
        what = f"no column {', '.join(map(repr, missing))}"
        raise UserError(Problem(what, str(path), 1, 1, "separate columns by ;"))
    return rows


_LATIN = dict(
    zip(
        "абвгдеёжзийклмнопрстуфхцчшщъыьэюя",
        [
            *"abvgdee",
            "zh",
            *"ziyklmnoprstuf",
            "kh",
            "ts",
            "ch",
            "sh",
            "shch",
            "",
            "y",
            "",
            "e",
            "yu",
            "ya",
        ],
        strict=True,
    )
)


def _slug(text: str) -> str:
    """Text as a name: Latin letters, digits, `.-_`."""
    latin = "".join(_LATIN.get(letter.lower(), letter) for letter in text)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", latin).strip("-._") or "imported"


def _text(data: Mapping[str, Any], origin: str) -> str:
    body = yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=110)
    return f"# {origin}\n{body}"


def _write(out: Path, texts: Mapping[Path, str]) -> None:
    """Write all files or none: into a temporary folder beside `out`, renamed when complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        for path, text in texts.items():
            (beside / path).parent.mkdir(parents=True, exist_ok=True)
            (beside / path).write_text(text, encoding="utf-8")
        beside.rename(out)
    except OSError as error:
        raise UserError(f"cannot write this folder: {error.strerror}", file=out) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
