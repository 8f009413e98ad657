"""A process that tells one notifier one thing: `python -m hpcbench.notify.deliver`, the job on its input.

Whatever a notifier does (hang, exit, print, leave a thread behind) ends with this process, which whoever
started it kills in time. The job names options with references; secrets are revealed here and masked in
what is said.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench import plugins, secret
from hpcbench.installed import this_python
from hpcbench.subprocesses import kill_session, why_it_ended

LIMIT = 30.0
"""Longest that telling one notifier one thing may take, tries and all, seconds."""

_FINAL = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
"""Faults of the system that do not pass within seconds."""


def send_apart(job: Mapping[str, Any], limit: float = LIMIT) -> Any:
    """Do a job in a process of its own, and kill it if it takes too long.

    Args:
        job: what `deliver` takes: `plugin`, `options` with references, `event`, `pauses`; and `packages`,
            the folder of those that the notifier may come from, or null.
        limit: seconds.

    Returns:
        What `deliver` says of it.
    """
    asked = json.dumps(job, allow_nan=False)
    child = subprocess.Popen(
        [*this_python(), "-m", "hpcbench.notify.deliver"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        out, errors = child.communicate(asked.encode(), timeout=limit)
    except subprocess.TimeoutExpired:
        return {"why": f"no end in {limit:g} s: it was stopped", "after": None, "remark": None}
    finally:
        kill_session(child)
    try:
        return json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return {"why": f"it {why_it_ended(child, errors)}", "after": None, "remark": None}


def deliver(
    plugin: str,
    options: Mapping[str, Any],
    event: Mapping[str, Any],
    pauses: Sequence[float],
) -> dict[str, Any]:
    """Tell a notifier, again after each pause if it is worth it.

    Args:
        plugin: its name.
        options: its options, with references.
        event: what to tell.
        pauses: seconds before the second try, the third, ….

    Returns:
        `why` it was not told, None if it was; `after`, seconds that it asked to be left alone; `remark`, what
        it said although it was told. No secret is in it.
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
    except Exception as error:  # noqa: BLE001 - foreign code and foreign servers: told, never raised
        return {"why": secret.mask(_said(error)), "after": after, "remark": None}
    raise AssertionError("the last try returns or raises")


def _said(error: Exception) -> str:
    """An error in a line; without what was put in, of which pydantic shows parts that no mask knows."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Do the job on standard input; the last line of the output is what came of it."""
    job = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # what a notifier prints is no answer
    if job["packages"] is not None:
        plugins.add_folder(Path(job["packages"]))
    json.dump(deliver(job["plugin"], job["options"], job["event"], job["pauses"]), out)
    out.flush()


if __name__ == "__main__":
    main()
