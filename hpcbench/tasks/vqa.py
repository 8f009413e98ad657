"""Visual question answering: the answer is the text.

Alone, without a cluster: `python -m hpcbench.tasks.vqa --dataset DATASET --responses FILE`.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from hpcbench.parsers import Output, Text
from hpcbench.schema.records import Sample


class Vqa:
    """Visual question answering."""

    api: ClassVar[int] = 1
    wants: ClassVar[Output] = "text"

    def parse(self, text: str, sample: Sample) -> str:
        """The text in the answer."""
        return Text().parse(text)


if __name__ == "__main__":
    from hpcbench.tasks.alone import main

    sys.exit(main("vqa", sys.argv[1:]))
