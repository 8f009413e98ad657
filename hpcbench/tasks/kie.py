"""Key-information extraction: the answer is one JSON object, in any wrapping.

Alone, without a cluster: `python -m hpcbench.tasks.kie --dataset DATASET --responses FILE`.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from hpcbench.parsers import JsonObject, Output
from hpcbench.schema.records import Sample


class Kie:
    """Key-information extraction."""

    api: ClassVar[int] = 1
    wants: ClassVar[Output] = "object"

    def parse(self, text: str, sample: Sample) -> object | None:
        """The object in the answer."""
        return JsonObject().parse(text)


if __name__ == "__main__":
    from hpcbench.tasks.alone import main

    sys.exit(main("kie", sys.argv[1:]))
