"""Text of engines, logs and files, safe to show: without control sequences of terminals and pages."""

from __future__ import annotations

import re

from hpcbench.visible import visible

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[@-Z\\-_]|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


def sanitize(line: str) -> str:
    """A line without control sequences: colours and cursor movements are removed, other controls become `·`.
    Controls of direction and invisible characters are written out.

    A progress bar that was drawn repeatedly keeps only its last state.
    """
    if line.isprintable():
        return visible(line)
    line = line.rstrip("\r").rpartition("\r")[2]
    return visible(_CONTROLS.sub("·", _ESCAPES.sub("", line)))
