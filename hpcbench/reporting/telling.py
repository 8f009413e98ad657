"""After the report: scores to trackers, the end to notifiers. One that fails costs the experiment nothing."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from hpcbench import plugins, secret
from hpcbench.experiment.layout import Experiment
from hpcbench.reporting.tables import metric_rows

TIMEOUT = 30.0
"""Longest wait for whoever is told, seconds."""


def tell(experiment: Experiment, state: str, tables: Mapping[str, Any] | None) -> list[str]:
    """Log scores, then send how it ended; returns what could not be done, one line each.

    Args:
        experiment: it has ended.
        state: `done` or `incomplete`.
        tables: what the reports were given; None without a report.
    """
    plan, failed = experiment.resolved.plan, []
    for tracker in plan.trackers if tables is not None else ():
        failed += _tried("trackers", tracker.plugin, tracker.options, "log", tables)
    event = {
        "experiment": experiment.id,
        "state": state,
        "report": str(experiment.report_dir) if tables is not None else None,
        "summary": _summary(experiment, state, tables),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    for notification in plan.notifications:
        if state in notification.when:
            failed += _tried("notifiers", notification.plugin, notification.options, "send", event)
    return failed


def _tried(kind: str, name: str, options: Mapping[str, Any], method: str, what: Any) -> list[str]:
    try:
        plugin = plugins.load(kind, name)(secret.reveal_all(dict(options)))
        getattr(plugin, method)(what)
    except Exception as error:  # noqa: BLE001 - foreign code and foreign servers: told, never raised
        return [secret.mask(f"{kind} {name}: {type(error).__name__}: {error}")]
    return []


def _summary(experiment: Experiment, state: str, tables: Mapping[str, Any] | None) -> str:
    """One line: how it ended, and the first metric of each of the first run tasks."""
    head = f"{experiment.id} is {state}"
    if tables is None:
        return head
    first: dict[str, str] = {}
    for row in metric_rows(tables["metrics"]):
        if row.value is not None:
            first.setdefault(row.run_task, f"{row.run_task} {row.metric} {row.value:.3f}")
    shown = list(first.values())[:5]
    more = f" and {len(first) - 5} more" if len(first) > 5 else ""
    return f"{head}: {', '.join(shown)}{more}" if shown else head


class JsonlTracker:
    """Appends one line a run task and metric to a JSONL file: a history that grows with every experiment."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the jsonl tracker."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        path: str
        """The file; made if it is not there."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.path = Path(self.Options.model_validate(dict(options)).path).expanduser()

    def log(self, tables: Mapping[str, Any]) -> None:
        """One write of all lines, so that experiments that end at once do not mix theirs."""
        lines = "".join(
            json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in _lines(tables)
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        try:
            os.write(descriptor, lines.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lines(tables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for run_task, table in tables["metrics"]["run_tasks"].items():
        for metric, entry in table["metrics"].items():
            known = {"value": None, **(entry or {})}
            keys = ("value", "low", "high", "n", "clusters", "signature")
            yield {
                "experiment": tables["id"],
                "plan": tables["plan"]["name"],
                "run_task": run_task,
                "model": table["model"],
                "dataset": table["dataset"],
                "coverage": table["coverage"],
                "metric": metric,
                **{key: known.get(key) for key in keys},
            }


class CommandNotifier:
    """Runs a program of the user's with the event as JSON on its standard input."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the command notifier."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        argv: tuple[str, ...] = Field(min_length=1)
        """Program and arguments; no shell reads them."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.argv = self.Options.model_validate(dict(options)).argv

    def send(self, event: Mapping[str, Any]) -> None:
        """Run it; another exit code than 0 is a failure."""
        done = subprocess.run(
            list(self.argv), input=json.dumps(event, ensure_ascii=False), text=True,
            capture_output=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-200:]}")


class WebhookNotifier:
    """Posts the event to a URL, as JSON or in the form that Slack and Mattermost take."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the webhook notifier."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        url: str
        """Where to; usually a secret, so a reference: `${env:WEBHOOK_URL}`."""
        form: Literal["json", "text"] = "json"
        """`json`: the event; `text`: an object with one key `text`, the summary."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))

    def send(self, event: Mapping[str, Any]) -> None:
        """Post it; another answer than 2xx is a failure."""
        if not self.options.url.startswith(("https://", "http://")):
            raise ValueError("the URL of a webhook begins with https://")
        body = event if self.options.form == "json" else {"text": event["summary"]}
        request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
            self.options.url,
            data=json.dumps(body, ensure_ascii=False).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
            answer.read()
