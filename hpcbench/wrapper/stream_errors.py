"""Errors within a stream of events, without secrets: an engine that fails after its first byte reports so.

All else passes as it is, and at once: only a line that may hold an error waits for its end.
"""

from __future__ import annotations

from hpcbench.event_stream import as_object
from hpcbench.wrapper.masking import Mask

_SIGN = b'"error"'
"""In each error: as a name, or as the kind of the object. Within a text its quotes are escaped."""
_DATA = b"data:"
_LONGEST_LINE = 2**20  # bytes that are kept of a line to see what it is


class StreamErrors:
    """Masks the errors of one stream.

    Args:
        mask: hides secrets.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._passed = b""  # of a line that is not complete
        self._held = b""  # its rest, which has not passed

    def feed(self, block: bytes, *, last: bool = False) -> bytes:
        """Take a block, the last one or not; returns the bytes that may pass."""
        if block[-1:] == b"\n" and _SIGN not in block and not (self._passed or self._held):
            return block
        passed = len(self._passed)
        lines = (self._passed + self._held + block).splitlines(keepends=True)
        rest = lines.pop() if lines and lines[-1][-1:] not in b"\r\n" else b""
        shown = []
        for line in lines:
            shown.append(self._shown(line, passed))
            passed = 0
        if last or _SIGN not in rest:
            shown.append(self._shown(rest, passed))
            self._passed, self._held = rest[-_LONGEST_LINE:], b""
        else:
            self._passed, self._held = rest[:passed], rest[passed:]
        return b"".join(shown)

    def _shown(self, line: bytes, passed: int) -> bytes:
        """The rest of a line of which some bytes have passed."""
        if _SIGN not in line or not _is_error(line):
            return line[passed:]
        if passed or not line.startswith(_DATA):
            return self._mask.clean(line[passed:])
        data = line.rstrip(b"\r\n")
        return _DATA + self._mask.answer(data[len(_DATA) :]) + line[len(data) :]


def _is_error(line: bytes) -> bool:
    """Whether a line is an error, or no JSON that shows otherwise."""
    found = as_object(line[len(_DATA) :].strip()) if line.startswith(_DATA) else {}
    return not found or bool(found.get("error")) or found.get("object") == "error"
