"""Judging: the answer is one JSON object with a verdict, in any wrapping.

Alone, without a cluster: `python -m hpcbench.tasks.judge --dataset DATASET --responses FILE`.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from hpcbench.parsers import JsonObject, Output
from hpcbench.schema.records import Sample


class Judge:
    """Verdicts on answers of another run task."""

    api: ClassVar[int] = 1
    wants: ClassVar[Output] = "object"

    def parse(self, text: str, sample: Sample) -> object | None:
        """The object in the answer."""
        return JsonObject().parse(text)


if __name__ == "__main__":
    from hpcbench.tasks.alone import main

    sys.exit(main("judge_binary", sys.argv[1:]))
