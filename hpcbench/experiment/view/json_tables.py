"""Files with a table for each run task: `metrics.json` and `performance.json`.

    whole_file                 the whole file, or one line on why it cannot be read
    one_table, sound_tables    its sound parts, for readers that must accept damage

Missing fields stay unset and unknown fields are kept: `to_json` returns the data that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.as_written import LARGEST, json_object
from hpcbench.files.json_places import Changed, Places, locate, read

Number = int | float
"""A number as written: 1 and 1.0 are not the same bytes."""


class Part(BaseModel):
    """A part of `metrics.json` or `performance.json`."""

    # Models are built when a file is first read: most commands read no file.
    model_config = ConfigDict(
        frozen=True, extra="allow", allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return self.model_dump(mode="json", exclude_unset=True)


PartT = TypeVar("PartT", bound=Part)


def table_places(path: Path) -> Places | None:
    """Where the tables of run tasks are in a metrics or performance file; None: it cannot be read."""
    try:
        return locate(path, "run_tasks", most=LARGEST)
    except (OSError, ValueError):
        return None


def sound(kind: type[PartT], table: object) -> PartT | None:
    """A part of a file; None: the table is no such part, or damaged."""
    try:
        return kind.model_validate(table)
    except ValidationError:
        return None


def one_table(
    kind: type[PartT], path: Path, version: int, run_task: str, places: Places | None
) -> PartT | None:
    table = None
    if places is None:
        table = _tables(path, version).get(run_task)
    elif (place := places.part(run_task)) is not None:
        versions = [places.whole[name] for name in ("version",) if name in places.whole]
        try:
            table, *written = read(path, places, [place, *versions])
        except Changed:
            return one_table(kind, path, version, run_task, None)
        except (OSError, ValueError):
            return None
        if written not in ([], [version]):
            return None
    return sound(kind, table) if table is not None else None


def sound_tables(kind: type[PartT], path: Path, version: int) -> Mapping[str, PartT]:
    read = {name: sound(kind, one) for name, one in _tables(path, version).items()}
    return {name: one for name, one in read.items() if one is not None}


def _tables(path: Path, version: int) -> Mapping[str, object]:
    """Run task → its table, as it was written; no tables where the file cannot be read."""
    try:
        found = json_object(path)
    except (OSError, ValueError):
        return {}
    tables = found.get("run_tasks") if found.get("version", version) == version else None
    return tables if isinstance(tables, dict) else {}


def whole_file(kind: type[PartT], experiment: Experiment, path: Path, version: int) -> PartT:
    try:
        found = json_object(path)
        if found.get("version", version) != version:
            what = f"has version {found['version']}, and this hpcbench reads version {version}"
            raise _unreadable(experiment, path, what)
        return kind.model_validate(found)
    except FileNotFoundError:
        raise _unreadable(experiment, path, "does not exist") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _unreadable(experiment, path, f"is damaged: {place}: {first['msg']}") from None
    except ValueError as error:
        raise _unreadable(experiment, path, f"is damaged: {error}") from None


def _unreadable(experiment: Experiment, path: Path, what: str) -> EnvironmentFault:
    remedy = f"`hpcbench score {experiment.id}` writes it again, from the answers"
    return EnvironmentFault(f"{path} {what}", remedy=remedy)
