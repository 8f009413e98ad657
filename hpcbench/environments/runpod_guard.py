"""Deletes a pod whose runner ended, in any way; a process in its own session, started by the runner.

Standard input is a pipe that only the runner holds: lines of JSON name the pod; if the pipe ends without the
word `done`, the runner was killed. After the pod's deadline the guard does not wait for the runner either.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from hpcbench.environments.runpod_api import Api, ApiFault
from hpcbench.errors import EnvironmentFault

PATIENCE = 1800.0
"""Seconds of attempts to delete the pod."""

LATE = 60.0
"""Seconds in which a pod may still appear after a request without a response."""

GRACE = 5.0
"""Seconds after the deadline in which the runner may delete the pod itself."""


def main() -> int:
    """Wait for the runner's end, or the pod's deadline."""
    print("ready", flush=True)  # noqa: T201 - to the runner, which rents nothing before
    facts: dict[str, Any] = {}
    rest, ended = b"", False
    while not ended:
        deadline = facts.get("deadline")
        left = None if deadline is None else max(0.0, deadline + GRACE - time.time())
        if not select.select([0], [], [], left)[0]:
            break
        data = os.read(0, 65536)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            facts |= json.loads(line)
        ended = not data
    if facts.get("done") or "name" not in facts:
        return 0
    api = Api(facts["endpoint"], facts["key"])
    try:
        _delete(api, facts)
    except EnvironmentFault as fault:
        print(f"FATAL: {fault}", file=sys.stderr, flush=True)  # noqa: T201 - into the runner's log
        return 3
    return 0


def _delete(api: Api, facts: dict[str, Any]) -> None:
    if "pod" in facts:
        api.give_back(facts["pod"], PATIENCE)
        return
    until = time.monotonic() + LATE
    while time.monotonic() < until:
        try:
            for pod in api.pods():
                if pod.get("name") == facts["name"]:
                    api.give_back(pod["id"], PATIENCE)
                    return
        except ApiFault as fault:
            if not fault.passing:
                raise
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
