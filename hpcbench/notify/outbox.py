"""Who was told what of an experiment, and who is to be told yet: `told.jsonl`, an outbox, only appended to.

    owed     an event, once; by its `id` it is known again
    sending  a notification is about to be told it
    told     it was, and with what remark
    failed   it was not, why, and how long it asked to be left alone

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
"""Seconds before others try again by themselves: after the first try, the second …; the last from then on."""

MOST = 8
"""Tries after which nobody tries again unasked."""

KEPT = 7 * 86_400.0
"""News older than this is told only if asked for, seconds."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event and one of the plan's notifications that is to be told it."""

    event: Mapping[str, Any]
    """The event, as notifiers get it."""
    number: int
    """The notification's place in the plan, from 0."""
    plugin: str
    """Its notifier."""
    state: Literal["owed", "sending", "told", "failed"] = "owed"
    """How far it is; `sending`: whoever told it died over it."""
    tries: int = 0
    """How often it was tried."""
    since: float = 0.0
    """When it was owed, seconds since the epoch."""
    at: float = 0.0
    """When that was last written down, seconds since the epoch."""
    said: str | None = None
    """Why it failed, or what was remarked."""
    not_before: float = 0.0
    """When it may be tried again at the earliest."""

    @property
    def key(self) -> tuple[str, int]:
        """Event and notification."""
        return str(self.event["id"]), self.number

    def due(self, now: float) -> bool:
        """Whether to tell it now, unasked."""
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
    """All that is or was to be told, oldest first."""
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
    """The `id` of how a round ended."""
    return f"end-{number}-{state}"


def word(state: object) -> str:
    """The word of a plan's `when` for an event: who is told of `incomplete` is told of `failed`."""
    return "incomplete" if state == "failed" else str(state)


def unsaid(experiment: Experiment) -> str | None:
    """How the experiment ended, if that is news that nobody has written down for telling yet.

    So it is where whoever concluded was killed before.
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
    told = any(word(state) in one.when for one in experiment.resolved.plan.notifications)
    return state if told else None


def waiting(experiment: Experiment) -> bool:
    """Whether there is anything to tell now, unasked. Cheap where nobody is ever told."""
    now = time.time()
    if unsaid(experiment) is not None:
        return True
    return experiment.told_file.exists() and any(one.due(now) for one in deliveries(experiment))
