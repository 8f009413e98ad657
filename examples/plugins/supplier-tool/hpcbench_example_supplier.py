"""Suppliers in a CSV file with the columns `name` and `number`, found by a name with mistakes."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


def nearest(name: str, known: Sequence[str], most: int = 3) -> list[str]:
    """The known names that resemble a name, the nearest first."""
    lower = {one.casefold(): one for one in known}
    found = difflib.get_close_matches(name.casefold(), lower, n=most, cutoff=0.6)
    return [lower[one] for one in found]


class Supplier:
    """Looks a supplier up by its name and gives its number. A name with small mistakes is found, too."""

    api: ClassVar[int] = 1
    idempotent: ClassVar[bool] = True
    stateless: ClassVar[bool] = True

    class Options(BaseModel):
        """Options of the tool."""

        model_config = ConfigDict(extra="forbid")

        table: str
        """CSV file with the columns `name` and `number`."""

    class Arguments(BaseModel):
        """The name that the model gives."""

        model_config = ConfigDict(extra="forbid")

        name: str = Field(min_length=1, description="The supplier's name, as in the document.")

    def __init__(self, options: Mapping[str, Any]) -> None:
        path = Path(self.Options.model_validate(dict(options)).table).expanduser()
        with path.open(encoding="utf-8", newline="") as file:
            self.numbers = {row["name"]: row["number"] for row in csv.DictReader(file)}

    def call(self, arguments: Any, context: Any) -> str:
        """The number, or names that resemble the one that was asked for."""
        from hpcbench.plugins import ToolError

        if arguments.name in self.numbers:
            return self.numbers[arguments.name]
        found = nearest(arguments.name, list(self.numbers))
        if not found:
            raise ToolError(f"no supplier resembles {arguments.name!r}")
        return "\n".join(f"{name}: {self.numbers[name]}" for name in found)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """A table and a name for the contract tests."""
        table = folder / "suppliers.csv"
        table.write_text("name,number\nACME GmbH,4711\nUmbrella Inc.,4712\n", encoding="utf-8")
        return {"options": {"table": str(table)}, "arguments": {"name": "ACNE Gmbh"}}
