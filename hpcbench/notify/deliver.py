"""A process that sends one event to one notifier: `python -m hpcbench.notify.deliver`, the job on its input.

Any effect of a notifier (hang, exit, print, a left-over thread) ends with this process, which its parent
kills in time. The job contains options with references; this process resolves the secrets and masks them in
its messages.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench import plugins, secret
from hpcbench.installed import this_python
from hpcbench.subprocesses import run

LIMIT = 30.0
"""Longest time to send one event to one notifier, with all tries, seconds."""

_FINAL = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
"""System errors that do not disappear within seconds."""


def send_apart(job: Mapping[str, Any], limit: float = LIMIT) -> Any:
    """Do a job in its own process, and kill the process if it takes too long.

    Args:
        job: arguments of `deliver`: `plugin`, `options` with references, `event`, `pauses`; and `packages`,
            the folder of packages that may contain the notifier, or null.
        limit: seconds.

    Returns:
        The result of `deliver`.
    """
    asked = json.dumps(job, allow_nan=False).encode()
    ended = run([*this_python(), "-m", "hpcbench.notify.deliver"], limit, given=asked, alone=True)
    if ended.late:
        why = f"it did not finish in {limit:g} s, and hpcbench stopped it"
        return {"why": why, "after": None, "remark": None}
    try:
        return json.loads(ended.out.splitlines()[-1])
    except (ValueError, IndexError):
        return {"why": f"it {ended.why}", "after": None, "remark": None}


def deliver(
    plugin: str,
    options: Mapping[str, Any],
    event: Mapping[str, Any],
    pauses: Sequence[float],
) -> dict[str, Any]:
    """Send an event to a notifier; try again after each pause if that may help.

    Args:
        plugin: its name.
        options: its options, with references.
        event: the event to send.
        pauses: seconds before the second try, the third, ….

    Returns:
        `why` it failed, None if it succeeded; `after`, seconds that the notifier asked to wait; `remark`, its
        remark on a success. No secret is in it.
    """
    after = None
    try:
        notifier = plugins.load("notifiers", plugin)(secret.reveal_all(dict(options)))
        for pause in (*pauses, None):
            try:
                remark = notifier.send(event)
                remark = secret.mask(remark) if isinstance(remark, str) else None
                return {"why": None, "after": None, "remark": remark}
            except OSError as error:
                after = getattr(error, "after", None)
                if pause is None or isinstance(error, _FINAL) or (after or 0.0) > 2 * pause + 3:
                    raise
                time.sleep(max(pause, after or 0.0))
    except Exception as error:  # noqa: BLE001 - foreign code and foreign servers: reported, never raised
        return {"why": secret.mask(_said(error)), "after": after, "remark": None}
    raise AssertionError("the last try returns or raises")


def _said(error: Exception) -> str:
    """An error in a line; without the input, of which pydantic shows parts that no mask knows."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Do the job on standard input; the last line of the output is the result."""
    job = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # a notifier's output is no result
    if job["packages"] is not None:
        plugins.add_folder(Path(job["packages"]))
    json.dump(deliver(job["plugin"], job["options"], job["event"], job["pauses"]), out)
    out.flush()


if __name__ == "__main__":
    main()
