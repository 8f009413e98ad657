"""Text of engines, logs and files as people may be shown it: without what terminals and pages obey."""

from __future__ import annotations

import re

from hpcbench.visible import visible

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[@-Z\\-_]|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


def sanitize(line: str) -> str:
    """A line without what terminals obey: colours and cursor movements go, other controls become `·`.
    What turns text around, or is not seen, is written out.

    Of a bar that was drawn over and over, only its last state is left.
    """
    if line.isprintable():
        return visible(line)
    line = line.rstrip("\r").rpartition("\r")[2]
    return visible(_CONTROLS.sub("·", _ESCAPES.sub("", line)))
