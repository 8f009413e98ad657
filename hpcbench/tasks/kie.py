"""Key-information extraction: the answer is one JSON object, with or without a code fence.

Alone, without a cluster: `python -m hpcbench.tasks.kie --dataset DATASET --responses FILE`.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from hpcbench.parsers import JsonObject
from hpcbench.schema.records import Sample


class Kie:
    """Key-information extraction."""

    api: ClassVar[int] = 1

    def parse(self, text: str, sample: Sample) -> dict[str, object] | None:
        """What the answer says."""
        return JsonObject().parse(text)


if __name__ == "__main__":
    from hpcbench.tasks.alone import main

    sys.exit(main("kie", sys.argv[1:]))
