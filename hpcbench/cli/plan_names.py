"""Plans by their names: a word of the command line that is no file."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from hpcbench.errors import UserError, nearest
from hpcbench.registry.catalog import FOLDERS, Catalog
from hpcbench.schema.experiment_plan import ExperimentPlan


def plan_called(given: PathLike[str], registries: Sequence[Path]) -> Path:
    """The file of the plan with this name; the word itself where it looks like a path.

    Args:
        given: word of the command line; there is no such file.
        registries: further registries.

    Raises:
        UserError: no plan answers to the word, or two do.
    """
    path = Path(given)
    if _is_path(path):
        return path  # its reader says that it is missing
    catalog = Catalog(registries)
    if (found := catalog.plan_called(path.name)) is not None:
        return found
    close = nearest(path.name, catalog.names(FOLDERS[ExperimentPlan]))
    remedy = f"did you mean '{close}'?" if close else "check the path, or add --registry DIR"
    raise UserError("no such file, and no plan of this name", file=path.name, remedy=remedy)


def named_plan(given: str, registries: Sequence[Path]) -> Path | None:
    """The file of the plan with this name; None: no plan answers to it.

    Raises:
        UserError: two answer to it.
    """
    return None if _is_path(Path(given)) else Catalog(registries).plan_called(given)


def _is_path(word: Path) -> bool:
    return word.name != str(word) or word.suffix in (".yaml", ".yml")
