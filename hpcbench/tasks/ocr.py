"""Text recognition: the answer is the page's text, with its lines.

Alone, without a cluster: `python -m hpcbench.tasks.ocr --dataset DATASET --responses FILE`.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from hpcbench.parsers import Output, Text
from hpcbench.schema.records import Sample


class Ocr:
    """Text recognition."""

    api: ClassVar[int] = 1
    wants: ClassVar[Output] = "text"
    transcribes: ClassVar[bool] = True

    def parse(self, text: str, sample: Sample) -> str:
        """The text in the answer."""
        return Text().parse(text)


if __name__ == "__main__":
    from hpcbench.tasks.alone import main

    sys.exit(main("ocr", sys.argv[1:]))
