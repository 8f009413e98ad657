"""Deletes a machine whose runner ended, in any way; a process in its own session, started by the runner.

Standard input is a pipe that only the runner holds: lines of JSON name the machine; if the pipe ends without
the word `done`, the runner was killed. After the deadline the guard does not wait for the runner either.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from hpcbench.environments.rented import Machines, renting
from hpcbench.errors import EnvironmentFault

PATIENCE = 1800.0
"""Seconds of attempts to delete the machine."""

LATE = 60.0
"""Seconds in which a machine may still appear after a request without a response."""

GRACE = 5.0
"""Seconds after the deadline in which the runner may delete the machine itself."""


def main() -> int:
    """Wait for the runner's end, or the deadline."""
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
    machines = renting(facts["kind"]).machines_at(facts["account"])
    try:
        _delete(machines, facts)
    except EnvironmentFault as fault:
        print(f"FATAL: {fault}", file=sys.stderr, flush=True)  # noqa: T201 - into the runner's log
        return 3
    return 0


def _delete(machines: Machines, facts: dict[str, Any]) -> None:
    if "id" in facts:
        machines.give_back(facts["id"], PATIENCE)
        return
    until = time.monotonic() + LATE
    while True:
        try:
            found = machines.existing().get(facts["name"])
            if found is not None:
                machines.give_back(found, PATIENCE)
                return
        except EnvironmentFault:
            if time.monotonic() > until:
                raise
        if time.monotonic() > until:
            return
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
