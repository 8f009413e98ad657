"""Results of VLMEvalKit: one table of predictions per dataset, `MODEL_DATASET.xlsx`, `.tsv` or `.json`.

    outputs/MODEL/[T20251120-101500/]MODEL_DATASET.xlsx         index, question, answer, prediction, …
    outputs/MODEL/[…/]MODEL_DATASET_acc.csv, …_score.json       the kit's numbers, kept as they are

Most of its metrics write no number per sample. Where another of its tables of the same samples has one (the
column `hit`, `score` or `eval_score`), the import takes that number. `.pkl` files are refused: reading one
runs the code in it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hpcbench.data.sheets import workbook
from hpcbench.errors import Problem, UserError
from hpcbench.files.user import read_json
from hpcbench.interchange.kit_results import (
    LONGEST_LABEL,
    Keys,
    Kit,
    KitMetric,
    KitRun,
    KitSample,
    KitTask,
    number_of,
    outcome_of,
    references_of,
)

TABLES = (".xlsx", ".tsv", ".json")

NUMBERS = ("hit", "score", "eval_score")
"""Columns that can hold a sample's number."""

LABELS = ("category", "l2-category", "split")
"""Columns that tables may group by."""

_AGGREGATES = ("_acc.csv", "_score.csv", "_acc.json", "_score.json", "_rating.json")


def read(place: Path, kit: Kit, keys: Keys) -> KitRun:
    """Read the predictions of one model.

    Raises:
        UserError: there are none, or several runs; a table cannot be read.
        EnvironmentFault: the file is a spreadsheet, and openpyxl is not installed.
    """
    tables = [place] if place.is_file() else _tables(place)
    if place.is_file():
        _refuse_pickle([place])
    model = _model(tables[0])
    found: list[KitTask] = []
    files: list[Path] = []
    for path in tables:
        beside = _beside(path)
        aggregates = {one.name: one.read_text(encoding="utf-8-sig") for one in beside}
        scored = _scored(path)
        files += [path, *beside, *([scored[0]] if scored is not None and scored[0] != path else [])]
        metrics = (KitMetric(scored[1]),) if scored is not None else ()
        name = path.stem.removeprefix(f"{model}_")
        samples = partial(_samples, path, scored, keys)
        found.append(KitTask(name, samples, metrics, "", aggregates))
    run = tables[0].parent.name
    version = run if run != model else ""
    return KitRun("vlmevalkit", version, model, tuple(found), tuple(files), {"run": version})


def _tables(folder: Path) -> list[Path]:
    """Tables of predictions of one run in a folder.

    Raises:
        UserError: there are none, or tables of several runs.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix in TABLES and path.is_file())
    runs: dict[Path, list[Path]] = {}
    for path in files:
        if path.stem.startswith(f"{_model(path)}_") and not path.is_symlink():
            runs.setdefault(path.parent, []).append(path)
    # `MODEL_DATASET_judge.xlsx` is derived from `MODEL_DATASET.xlsx`.
    for where, own in runs.items():
        stems = {path.stem for path in own}
        runs[where] = [
            path
            for path in own
            if not any(path.stem.startswith(f"{stem}_") for stem in stems)
            and not path.name.endswith(_AGGREGATES)
        ]
    runs = {where: own for where, own in runs.items() if own}
    if not runs:
        _refuse_pickle(sorted(folder.rglob("*.pkl")))
        what = "the folder has no MODEL/MODEL_DATASET.xlsx, .tsv or .json"
        raise UserError(Problem(what, str(folder), remedy="name the file"))
    if len(runs) > 1:
        listed = ", ".join(str(where.relative_to(folder)) for where in list(runs)[-5:])
        raise UserError(
            Problem(f"{len(runs)} runs: {listed}", str(folder), remedy="name one of them")
        )
    return next(iter(runs.values()))


def _refuse_pickle(paths: list[Path]) -> None:
    for path in paths:
        if path.suffix == ".pkl":
            raise UserError(
                Problem(
                    "hpcbench does not read pickles: reading one can run any program",
                    str(path),
                    remedy="write it as .tsv or .json with VLMEvalKit's own Python",
                )
            )


def _model(path: Path) -> str:
    """The model's folder: the file's folder, or the folder above the run's."""
    own, above = path.parent.name, path.parent.parent.name
    return above if not path.stem.startswith(f"{own}_") and above else own


def _beside(path: Path) -> list[Path]:
    """Files with the kit's numbers for the whole dataset."""
    return [one for ending in _AGGREGATES if (one := path.with_name(path.stem + ending)).is_file()]


def _scored(path: Path) -> tuple[Path, str] | None:
    """The table that has a number per sample, and the column."""
    others = sorted(one for one in path.parent.glob(f"{path.stem}_*") if one.suffix in TABLES)
    for one in (path, *(other for other in others if not other.name.endswith(_AGGREGATES))):
        first = next(iter(_rows(one)), None)
        if first is None or "index" not in first[1]:
            continue
        for column in NUMBERS:
            if _number(first[1].get(column)) is not None:
                return one, column
    return None


def _samples(path: Path, scored: tuple[Path, str] | None, keys: Keys) -> Iterator[KitSample]:
    numbers: dict[str, float] = {}
    if scored is not None:
        for _, row in _rows(scored[0]):
            if (number := _number(row.get(scored[1]))) is not None:
                numbers[_text(row.get("index")) or ""] = number
    seen: dict[str, int] = {}
    for place, row in _rows(path):
        for column in ("index", "prediction"):
            if column not in row:
                what = f"not predictions of VLMEvalKit: no column '{column}'"
                raise UserError(Problem(what, place.file, place.line))
        index = _text(row["index"])
        sample_id = _text(keys.of(row, "id", index, place))
        if sample_id is None:
            raise UserError(Problem("the row has no 'index'", place.file, place.line))
        if sample_id in seen:
            what = f"sample '{sample_id}' occurs twice, first in row {seen[sample_id]}"
            raise UserError(Problem(what, place.file, place.line))
        assert place.line is not None
        seen[sample_id] = place.line
        answer = _text(keys.of(row, "answer", row["prediction"], place))
        document = _text(keys.of(row, "document", None, place))
        labels = {
            name: text
            for name in LABELS
            if (text := _text(row.get(name))) and len(text) <= LONGEST_LABEL
        }
        yield KitSample(
            id=sample_id,
            answer=answer,
            references=references_of(keys.of(row, "references", _reference(row), place)),
            question=_text(keys.of(row, "question", row.get("question"), place)) or "",
            document=document,
            outcome=outcome_of(answer),
            scores={scored[1]: numbers[index]} if scored is not None and index in numbers else {},
            metadata={**labels, **keys.metadata(row)},
        )


def _reference(row: Mapping[str, Any]) -> Any:
    found = row.get("answer", row.get("answers"))
    return found if isinstance(found, (list, tuple)) else _text(found)


def _number(value: Any) -> float | None:
    """A cell's number, also where the table holds it as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return {"true": 1.0, "false": 0.0}.get(value.strip().lower())
    return number_of(value)


def _text(value: Any) -> str | None:
    """A cell as text; a whole number without the point that spreadsheets add; None: an empty cell."""
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else str(value)


# --- tables -------------------------------------------------------------------------------------------


def _rows(path: Path) -> Iterator[tuple[Problem, Mapping[str, Any]]]:
    """Rows of a table under its header, each with its place.

    Raises:
        UserError: the table cannot be read, or is a pickle.
        EnvironmentFault: the table is a spreadsheet, and openpyxl is not installed.
    """
    readers = {".xlsx": _xlsx, ".tsv": _tsv, ".json": _json}
    _refuse_pickle([path])
    if path.suffix not in readers:
        raise UserError(
            Problem(f"a file of predictions must end in one of {', '.join(TABLES)}", str(path))
        )
    yield from readers[path.suffix](path)


def _xlsx(path: Path) -> Iterator[tuple[Problem, Mapping[str, Any]]]:
    with workbook(path.read_bytes(), path, "write it as .tsv (PRED_FORMAT=tsv)") as book:
        rows = book.worksheets[0].iter_rows(values_only=True)
        head = [str(name) for name in next(rows, ())]
        for number, row in enumerate(rows, 2):
            if any(cell is not None for cell in row):
                yield Problem("", str(path), number), dict(zip(head, row, strict=False))


def _tsv(path: Path) -> Iterator[tuple[Problem, Mapping[str, Any]]]:
    csv.field_size_limit(1 << 30)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t", strict=True)
            for row in reader:
                if None in row or None in row.values():
                    what = f"the header has {len(reader.fieldnames or ())} cells, this row has another number"
                    raise UserError(Problem(what, str(path), reader.line_num))
                yield Problem("", str(path), reader.line_num), row
    except csv.Error as error:
        raise UserError(Problem(f"not a table: {error}", str(path), reader.line_num)) from None
    except UnicodeDecodeError as error:
        raise UserError(Problem(f"not UTF-8: {error}", str(path))) from None


def _json(path: Path) -> Iterator[tuple[Problem, Mapping[str, Any]]]:
    """A list of rows, or an object of columns."""
    found = read_json(path)
    if isinstance(found, dict) and found and all(isinstance(one, list) for one in found.values()):
        if len({len(one) for one in found.values()}) > 1:
            raise UserError(Problem("its columns have different lengths", str(path)))
        found = [
            dict(zip(found, cells, strict=True)) for cells in zip(*found.values(), strict=True)
        ]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UserError(Problem("neither a list of rows nor an object of columns", str(path)))
    for number, row in enumerate(found, 1):
        yield Problem("", str(path), number), row
