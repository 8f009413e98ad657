"""Document classification: the answer is the class's name.

Alone, without a cluster: `python -m hpcbench.tasks.classification --dataset DATASET --responses FILE`.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from hpcbench.parsers import Label, Output
from hpcbench.schema.records import Sample


class Classification:
    """Document classification."""

    api: ClassVar[int] = 1
    wants: ClassVar[Output] = "label"

    def parse(self, text: str, sample: Sample) -> str:
        """The class that the answer names."""
        return Label().parse(text)


if __name__ == "__main__":
    from hpcbench.tasks.alone import main

    sys.exit(main("classification", sys.argv[1:]))
