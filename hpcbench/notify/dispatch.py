"""After the end: scores to trackers, events to notifiers. A failure never affects the experiment.

Pending events are in `told.jsonl`, see `notify/outbox.py`. Compute nodes often have no network, so the next
command on the login node sends pending events. No event is sent twice: one process sends at a time, and sent
events are not sent again. If a process died while sending, the outcome is unknown; then the event is
sent again, with a note that it may be a repeat, because a lost event is worse.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench import plugins, secret
from hpcbench.comparison.gate.verdict import worth_an_alert
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.access import use_umask
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import Outcome, outcome
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.files.atomic import Appender
from hpcbench.files.lease import alone
from hpcbench.notify import outbox
from hpcbench.notify.deliver import LIMIT, send_apart
from hpcbench.notify.outbox import Delivery, deliveries
from hpcbench.reporting.printed_tables import metric_rows
from hpcbench.reporting.sections.shared import scores_in
from hpcbench.schema.outputs import Notification

PAUSES = (1.0, 3.0)
"""Seconds before the second and the third try within one call."""

PATIENCE = LIMIT + 5.0
"""Longest wait for another process that is sending, seconds."""

# --- events --------------------------------------------------------------------------------------------


def tell(experiment: Experiment, state: str, tables: Mapping[str, Any] | None) -> list[str]:
    """Log scores, then send the final state; returns failures, one line each.

    Args:
        experiment: it has ended.
        state: `done`, `incomplete` or `failed`; no other state is sent.
        tables: the tables that the reports received; None without a report.
    """
    failed: list[str] = []
    for tracker in experiment.resolved.plan.trackers if tables is not None else ():
        failed += _logged(tracker.plugin, tracker.options, tables)
    return failed + _settled(experiment, _end(experiment, state, tables))


def tell_verdict(experiment: Experiment, verdict: Mapping[str, Any]) -> list[str]:
    """Send a verdict that deserves an alert; the same verdict is sent once.

    Args:
        experiment: the candidate.
        verdict: `report/verdict.json`.

    Returns:
        Failures, one line each.
    """
    if not worth_an_alert(verdict):
        return []
    lasting = {key: one for key, one in verdict.items() if key != "time"}
    text = json.dumps(lasting, sort_keys=True, ensure_ascii=False)
    reasons = [str(one) for one in verdict.get("reasons") or ()]
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    summary = f"{verdict['verdict']} for {experiment.id} against {verdict.get('baseline')}"
    event = {
        **_common(experiment, f"verdict-{hashlib.sha256(text.encode()).hexdigest()[:12]}"),
        "state": "regression",
        "report": _report(experiment),
        "summary": f"{summary}: {reasons[0]}{more}" if reasons else summary,
        "verdict": dict(verdict),
    }
    return _settled(experiment, event)


def catch_up(experiment: Experiment) -> list[str]:
    """Send the pending events of an experiment that are due, from the login node. Never raises.

    Returns:
        Failures, one line each.
    """
    try:
        state = outbox.unsaid(experiment)
        event = _end(experiment, state, None) if state is not None else None
        if event is None and not outbox.waiting(experiment):
            return []
    except (OSError, ValueError, KeyError, TypeError, HpcbenchError):
        return []  # not readable for this user, or of another version
    return _settled(experiment, event, patience=0.0)


def send_now(experiment: Experiment) -> list[Delivery]:
    """Send all pending events, whenever they were tried last; returns the new state of each.

    Raises:
        OSError: the experiment's directory cannot be written.
    """
    with alone(_lock(experiment), PATIENCE) as mine:
        if mine:
            _send(experiment, [one for one in deliveries(experiment) if one.state != "told"])
    return deliveries(experiment)


def send_test(
    experiment: Experiment, notifications: Sequence[Notification], plan: str
) -> list[Delivery]:
    """Send a test event to every notification, and return the results; nothing is recorded.

    Args:
        experiment: an experiment, or a possible path of one: a plan may not have any yet.
        notifications: the plan's notifications.
        plan: its name.
    """
    event = {
        **_common(None, f"test-{time.time_ns():x}"),
        "experiment": experiment.id,
        "plan": plan,
        "state": "test",
        "report": None,
        "summary": f"a test of plan {plan}: this notifier will report how its experiments end",
    }
    found = [Delivery(event, number, one.plugin) for number, one in enumerate(notifications)]
    return sorted(_each(experiment, found, notifications), key=lambda one: one.number)


def _end(
    experiment: Experiment, state: str, tables: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The final state as an event; None: no notification wants it."""
    if not any(outbox.word(state) in one.when for one in experiment.resolved.plan.notifications):
        return None
    known = outcome(experiment)
    report = str(experiment.report_dir) if tables is not None else _report(experiment)
    return {
        **_common(experiment, outbox.end_of(known.round if known else 0, state)),
        "state": state,
        "report": report,
        "summary": _summary(experiment, state, tables),
    }


def _common(experiment: Experiment | None, identity: str) -> dict[str, Any]:
    name = experiment.id if experiment is not None else "hpcbench"
    return {
        "id": f"{name}.{identity}",
        "experiment": name,
        "plan": experiment.resolved.plan.name if experiment is not None else "",
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _report(experiment: Experiment) -> str | None:
    return str(experiment.report_dir) if experiment.report_dir.is_dir() else None


def _summary(experiment: Experiment, state: str, tables: Mapping[str, Any] | None) -> str:
    """One line: the final state, and the first metric of each of the first run tasks."""
    known = outcome(experiment) or Outcome(0, state)
    left = len(known.shards_left)
    head = f"{experiment.id} is {state}{known.why}" + (
        f", {left} shards are not finished" if left else ""
    )
    try:
        scores = scores_in(tables) if tables is not None else metrics_of(experiment).run_tasks
    except (OSError, ValueError, HpcbenchError):
        return head
    first: dict[str, str] = {}
    for row in metric_rows(scores):
        if row.value is not None:
            first.setdefault(row.run_task, f"{row.run_task} {row.metric} {row.value:.3f}")
    shown = list(first.values())[:5]
    more = f" and {len(first) - 5} more" if len(first) > 5 else ""
    return f"{head}: {', '.join(shown)}{more}" if shown else head


# --- sending ------------------------------------------------------------------------------------------


def _settled(
    experiment: Experiment, event: Mapping[str, Any] | None, patience: float = PATIENCE
) -> list[str]:
    """Record an event as owed, and send due events; returns failures. Never raises."""
    if event is None and not experiment.told_file.exists():
        return []
    if not experiment.resolved.plan.notifications:
        return []
    try:
        use_umask(experiment.resolved.site)
        with alone(_lock(experiment), patience) as mine:
            if not mine:
                return ["notifiers: another process is still sending messages"] if patience else []
            known = deliveries(experiment)
            if event is not None and all(one.event["id"] != event["id"] for one in known):
                with Appender(experiment.told_file) as log:
                    log.write({"event": "owed", "time": time.time(), "what": event})
                known = deliveries(experiment)
            now = time.time()
            tried = _send(experiment, [one for one in known if one.due(now)])
            tried.sort(key=lambda one: one.number)
    except PermissionError:
        return []  # another user's experiment
    except Exception as error:  # noqa: BLE001 - nothing is sent; the experiment has ended all the same
        return [secret.mask(f"notifiers: {type(error).__name__}: {error}")]
    return [f"notifiers {one.plugin}: {one.said}" for one in tried if one.state == "failed"]


def _send(experiment: Experiment, due: Sequence[Delivery]) -> list[Delivery]:
    """Send each event, all at once, and record the results."""
    notifications = experiment.resolved.plan.notifications
    ready, tried = [], []
    for one in due:
        lacking = _lacking(notifications[one.number].options)
        if lacking:  # a later shell may have it; nothing was tried
            tried.append(replace(one, state="failed", said=lacking))
        else:
            ready.append(one)
    if not ready:
        return tried
    with Appender(experiment.told_file) as log:
        for one in ready:
            log.write(_line("sending", one, pid=os.getpid()))
        log.sync()
        for one in _each(experiment, ready, notifications):
            after = max(0.0, one.not_before - time.time()) or None
            log.write(_line(one.state, one, said=one.said, after=after))
            log.sync()
            tried.append(one)
    return tried


def _line(kind: str, delivery: Delivery, **more: Any) -> dict[str, Any]:
    identity, number = delivery.key
    line = {"event": kind, "time": time.time(), "id": identity, "notification": number}
    return (
        line
        | {"plugin": delivery.plugin}
        | {key: one for key, one in more.items() if one is not None}
    )


def _lacking(options: Mapping[str, Any]) -> str | None:
    """The first secret that is not available here."""
    for message, remedy in secret.missing(json.dumps(dict(options), ensure_ascii=False)):
        return f"{message} ({remedy})"
    return None


def _each(
    experiment: Experiment, ready: Sequence[Delivery], notifications: Sequence[Notification]
) -> Iterator[Delivery]:
    """Each delivery when it returns, sent or failed."""
    if not ready:
        return
    packages = experiment.manifest.host_packages if experiment.manifest_file.exists() else None
    with ThreadPoolExecutor(min(8, len(ready))) as pool:
        jobs = {
            pool.submit(
                send_apart,
                {
                    "packages": packages,
                    "pauses": list(PAUSES),
                    "plugin": one.plugin,
                    "options": dict(notifications[one.number].options),
                    "event": _repeated(one.event) if one.state == "sending" else one.event,
                },
            ): one
            for one in ready
        }
        for job in as_completed(jobs):
            found, now = job.result(), time.time()
            sent = found["why"] is None
            yield replace(
                jobs[job],
                state="told" if sent else "failed",
                at=now,
                said=found["remark"] if sent else found["why"],
                tries=jobs[job].tries + 1,
                not_before=now + (found["after"] or 0.0),
            )


def _repeated(event: Mapping[str, Any]) -> dict[str, Any]:
    return {**event, "summary": f"{event['summary']} (this message may be a repetition)"}


def _lock(experiment: Experiment) -> Path:
    return experiment.told_file.with_suffix(".lock")


# --- trackers ------------------------------------------------------------------------------------------


def _logged(name: str, options: Mapping[str, Any], tables: Any) -> list[str]:
    try:
        plugin = plugins.load("trackers", name)
        plugin(plugins.revealed(plugin, options)).log(tables)
    except Exception as error:  # noqa: BLE001 - foreign code and foreign servers: reported, never raised
        return [secret.mask(f"trackers {name}: {type(error).__name__}: {error}")]
    return []
