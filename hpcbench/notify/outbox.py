"""Sent and pending events of an experiment: `told.jsonl`, an outbox, only appended to.

    owed     an event, once; its `id` identifies it
    sending  it is about to be sent to a notification
    told     it was sent, with a remark
    failed   it was not sent: why, and how long the notifier asked to wait

`notify/dispatch.py` writes it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import outcome
from hpcbench.files.atomic import read_lines

WAITS = (60.0, 300.0, 1800.0, 7200.0)
"""Seconds before an automatic retry: after the first try, the second …; then always the last."""

MOST = 8
"""Most automatic tries."""

KEPT = 7 * 86_400.0
"""Events older than this are sent only on request, seconds."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event and one of the plan's notifications that receives it."""

    event: Mapping[str, Any]
    """The event, as notifiers receive it."""
    number: int
    """The notification's place in the plan, from 0."""
    plugin: str
    """Its notifier."""
    state: Literal["owed", "sending", "told", "failed"] = "owed"
    """Its progress; a stale `sending`: the sending process died."""
    tries: int = 0
    """Number of tries."""
    since: float = 0.0
    """When it became owed, seconds since the epoch."""
    at: float = 0.0
    """Time of its last record, seconds since the epoch."""
    said: str | None = None
    """The reason of a failure, or a remark."""
    not_before: float = 0.0
    """The earliest time of the next try."""

    @property
    def key(self) -> tuple[str, int]:
        """Event and notification."""
        return str(self.event["id"]), self.number

    def due(self, now: float) -> bool:
        """Whether to send it now, without a request."""
        if self.state == "told" or self.tries >= MOST or now - self.since > KEPT:
            return False
        if self.tries == 0:
            return True
        wait = WAITS[min(self.tries, len(WAITS)) - 1]
        return now >= max(self.at + wait, self.not_before)

    def to_json(self) -> dict[str, Any]:
        """For `hpcbench notify --json`."""
        return {
            "experiment": self.event.get("experiment"), "what": self.event.get("state"),
            "notification": self.number, "plugin": self.plugin, "state": self.state,
            "tries": self.tries, "said": self.said, "id": self.event["id"],
        }  # fmt: skip


def deliveries(experiment: Experiment) -> list[Delivery]:
    """All sent and pending deliveries, oldest first."""
    found: dict[tuple[str, int], Delivery] = {}
    notifications = experiment.resolved.plan.notifications
    for line in read_lines(experiment.told_file):
        kind, at = line.get("event"), float(line.get("time", 0.0))
        if kind == "owed":
            event = line["what"]
            for number, one in enumerate(notifications):
                if word(event["state"]) in one.when:
                    found[event["id"], number] = Delivery(event, number, one.plugin, since=at)
            continue
        key = (line.get("id"), line.get("notification"))
        if key not in found or kind not in ("sending", "told", "failed"):
            continue  # a line of a later version
        known = found[key]
        found[key] = replace(
            known,
            state=kind,
            at=at,
            said=line.get("said"),
            tries=known.tries + (kind == "sending"),
            not_before=at + float(line.get("after") or 0.0),
        )
    return list(found.values())


def end_of(number: int, state: str) -> str:
    """The `id` of a round's end."""
    return f"end-{number}-{state}"


def word(state: object) -> str:
    """The word of a plan's `when` for an event: `incomplete` includes `failed`."""
    return "incomplete" if state == "failed" else str(state)


def unsaid(experiment: Experiment) -> str | None:
    """The experiment's final state, if it deserves an event that is not recorded yet.

    This happens if the process that concluded was killed before.
    """
    known = outcome(experiment)
    if known is None or not known.notify:
        return None
    if time.time() - experiment.outcome_file.stat().st_mtime > KEPT:
        return None
    identity, state = end_of(known.round, known.state), known.state
    ids = {line["what"]["id"] for line in read_lines(experiment.told_file) if "what" in line}
    if f"{experiment.id}.{identity}" in ids:
        return None
    wanted = any(word(state) in one.when for one in experiment.resolved.plan.notifications)
    return state if wanted else None


def waiting(experiment: Experiment) -> bool:
    """Whether there is an event to send now, without a request. Cheap without notifications."""
    now = time.time()
    if unsaid(experiment) is not None:
        return True
    return experiment.told_file.exists() and any(one.due(now) for one in deliveries(experiment))
