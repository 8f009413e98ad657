"""Prompts and responses as traces for Arize Phoenix: a span per sample, by its REST API (10.12 or newer).

Attributes follow the OpenInference conventions, scores are annotations of spans. Ids are hashes of
experiment, run task and sample, so that an interrupted or repeated transfer sends only missing spans.
Images are named by their hashes; their bytes are not sent. Phoenix stores no figures of whole runs, no files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timezone
from itertools import islice
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import Field

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.tracking.experiment_content import Exchange, pieces
from hpcbench.tracking.feed import Sink
from hpcbench.tracking.sent import Notes
from hpcbench.tracking.server_requests import Web
from hpcbench.tracking.tracker_process import ServerOptions, ServerTracker, TokenOptions

BATCH = 200
"""Most spans in one request."""

SHOWN_SECONDS = 30.0
"""Longest wait until Phoenix shows sent spans: it answers before it has written them."""


class PhoenixOptions(TokenOptions):
    """Options of the phoenix tracker."""

    url: str
    """Its address, `http://localhost:6006`."""
    project: str = ""
    """Its project there, made if there is none; none: the plan's name."""
    api_key: str | None = Field(default=None, repr=False)
    """A reference, `${env:PHOENIX_API_KEY}`, which is what it is if there is none here."""


class PhoenixTracker(ServerTracker):
    """Sends a trace for each sample to an Arize Phoenix, and scores as annotations of the trace."""

    Options: ClassVar[type[ServerOptions]] = PhoenixOptions
    options: PhoenixOptions

    def destination(self, experiment: Experiment) -> Mapping[str, Any]:
        """Address and project."""
        return {"url": self.options.url, "project": self._project(experiment)}

    def sink(self, experiment: Experiment, notes: Notes) -> PhoenixSink:
        """The experiment's project there."""
        key = self.options.api_key or os.environ.get("PHOENIX_API_KEY")
        web = Web(
            self.options.url, {"Authorization": f"Bearer {key}"} if key else {},
            timeout=self.options.timeout, ca_file=self.options.ca_file, name="Phoenix",
            bearer=self.options.bearer(),
        )  # fmt: skip
        return PhoenixSink(_Project(web, self._project(experiment)), notes)

    def _project(self, experiment: Experiment) -> str:
        return self.options.project or experiment.resolved.plan.name


class PhoenixSink(Sink):
    """An experiment's spans in a project."""

    wants: ClassVar[frozenset[str]] = frozenset({"exchanges"})
    at_once: ClassVar[int] = BATCH

    def __init__(self, project: _Project, notes: Notes) -> None:
        self._project, self._notes = project, notes

    def open(self) -> None:
        """Create the project, if it does not exist: then the notes are about a deleted project."""
        if self._project.make():
            self._notes.forget()

    def exchanges(self, run_task: ResolvedRunTask, found: Sequence[Exchange]) -> int:
        """A span for each exchange, and an annotation for each score; returns when Phoenix shows them."""
        spans = [span(one, self._project.name) for one in found]
        sent = self._project.send(spans)
        self._project.wait_for(spans)
        self._project.annotate(found)
        return sent


def export(
    experiment: Experiment,
    url: str,
    project: str,
    headers: Mapping[str, str],
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Send every answered sample that Phoenix lacks; returns how many were sent.

    Args:
        experiment: the experiment.
        url: Phoenix's address.
        project: its project there, created if it does not exist.
        headers: sent with each request, e.g. `Authorization`.
        progress: receives the number of samples checked.

    Raises:
        EnvironmentFault: Phoenix cannot be reached, or refuses the spans.
    """
    there = _Project(Web(url, headers, name="Phoenix"), project)
    there.make()
    sent = done = 0
    spans = _spans_of(experiment, project)
    while batch := list(islice(spans, BATCH)):
        sent += there.send(batch)
        done += len(batch)
        progress(done)
    return sent


def _spans_of(experiment: Experiment, project: str) -> Iterator[dict[str, Any]]:
    for run_task in experiment.resolved.run_tasks:
        for piece in pieces(experiment, run_task, {}, limit=None, ended=False):
            yield from (span(one, project) for one in piece.exchanges)


def span(one: Exchange, project: str) -> dict[str, Any]:
    """One span in the form of Phoenix's API: prompt, response, duration."""
    response, name = one.response, one.name_at(project)
    attributes: dict[str, Any] = {
        "llm.model_name": one.run_task.model.name,
        "llm.invocation_parameters": json.dumps(one.settings, ensure_ascii=False),
        "input.value": one.messages[-1].text,
        "output.value": response.text or "",
        "metadata": json.dumps(one.about(), ensure_ascii=False, default=str),
    }
    for number, message in enumerate(one.messages):
        attributes[f"llm.input_messages.{number}.message.role"] = message.role
        attributes[f"llm.input_messages.{number}.message.content"] = message.text
    if response.text is not None:
        attributes["llm.output_messages.0.message.role"] = "assistant"
        attributes["llm.output_messages.0.message.content"] = response.text
    for ours, theirs in (("prompt_tokens", "prompt"), ("completion_tokens", "completion")):
        if response.usage and ours in response.usage:
            attributes[f"llm.token_count.{theirs}"] = response.usage[ours]
    return {
        "name": one.run_task.name,
        "context": {"trace_id": name[:32], "span_id": name[32:48]},
        "span_kind": "LLM",
        "start_time": one.began.astimezone(timezone.utc).isoformat(),
        "end_time": (one.began + one.took).astimezone(timezone.utc).isoformat(),
        "status_code": "OK" if one.good else "ERROR",
        "status_message": "" if one.good else response.error or response.outcome,
        "attributes": attributes,
    }


class _Project:
    """A project of Phoenix."""

    def __init__(self, web: Web, name: str) -> None:
        self._web, self.name = web, name
        self._path = f"/v1/projects/{quote(name, safe='')}"

    def make(self) -> bool:
        """Create it, if it does not exist; returns whether it was new."""
        status, answer = self._web.json("GET", self._path)
        if missing := status == 404:
            status, answer = self._web.json("POST", "/v1/projects", {"name": self.name})
            if status == 409:  # another process was faster
                return True
        self._web.must(status, answer)
        return missing

    def send(self, spans: Sequence[Mapping[str, Any]]) -> int:
        """Send spans; Phoenix refuses a whole batch for one duplicate, so the others are sent again."""
        fresh = self._offer(spans)
        return self.send(fresh) if 0 < len(fresh) < len(spans) else len(fresh)

    def wait_for(self, spans: Sequence[Mapping[str, Any]]) -> None:
        """Wait until Phoenix shows the spans: offered again, each is refused as a duplicate.

        Raises:
            EnvironmentFault: it does not show them in time.
        """
        started, pause = time.monotonic(), 0.1
        while missing := self.send(spans):
            if time.monotonic() - started > SHOWN_SECONDS:
                raise EnvironmentFault(
                    f"{self._web.url} accepted {missing} traces, but does not show them",
                    remedy="see its log; `hpcbench track` sends them again",
                )
            time.sleep(pause)
            pause = min(2.0, 2 * pause)

    def annotate(self, found: Sequence[Exchange]) -> None:
        """Set the score of each metric on each span; an existing score is replaced."""
        data = [
            {
                "span_id": one.name_at(self.name)[32:48], "name": metric, "annotator_kind": "CODE",
                "result": {"score": score}, "identifier": "hpcbench",
            }
            for one in found
            for metric, score in one.scores.items()
        ]  # fmt: skip
        for start in range(0, len(data), BATCH):
            batch = {"data": data[start : start + BATCH]}
            self._web.must(*self._web.json("POST", "/v1/span_annotations?sync=true", batch))

    def _offer(self, spans: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Offer spans; returns the new ones. If some were not new, Phoenix accepted none."""
        status, answer = self._web.json("POST", f"{self._path}/spans", {"data": spans})
        known = (
            {one["span_id"] for one in answer.get("duplicate_spans", ())}
            if status == 400
            else set()
        )
        if not known:
            self._web.must(status, answer)
        return [one for one in spans if one["context"]["span_id"] not in known]
