"""Prompts and responses as traces for Arize Phoenix: a span a sample, through its REST API (10.12 or newer).

Attributes follow the OpenInference conventions. Ids are hashes of experiment, run task and sample, so that an
export that was cut off or is repeated sends only what is not there yet. Images are named by their hashes;
their bytes are not sent.
"""

from __future__ import annotations

import hashlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any
from urllib.parse import quote

from hpcbench.data.datasets import open_dataset, samples
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import responses_of
from hpcbench.experiment.layout import Experiment
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message, Response, Sample

BATCH = 200
"""Spans sent at once."""

TRIES = 3
"""How often a batch is sent that the server could not take."""


def export(
    experiment: Experiment,
    url: str,
    project: str,
    headers: Mapping[str, str],
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Send every answered sample that is not there yet; returns how many were sent.

    Args:
        experiment: the experiment.
        url: Phoenix's address.
        project: its project there, made if there is none.
        headers: sent with each request, e.g. `Authorization`.
        progress: told how many were looked at.

    Raises:
        EnvironmentFault: Phoenix cannot be reached, or refuses it.
    """
    phoenix = _Phoenix(url.rstrip("/"), project, headers)
    phoenix.make_project()
    sent = done = 0
    spans = spans_of(experiment)
    while batch := list(islice(spans, BATCH)):
        sent += phoenix.send(batch)
        done += len(batch)
        progress(done)
    return sent


def spans_of(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """A span for every answer of an experiment, as Phoenix's API takes them.

    Times on nodes are monotonic: within a shard they are true to each other, and each shard begins when the
    experiment was made.
    """
    created = datetime.strptime(str(experiment.manifest["created"]), "%Y-%m-%dT%H:%M:%S%z")
    for run_task in experiment.resolved.run_tasks:
        iterator = open_dataset(run_task.dataset, experiment.cache_dir)
        chosen = experiment.chosen(run_task.name)
        prompt = TaskPrompt(run_task)
        for shard in experiment.work.shards_of((run_task.name,)):
            answers = {one.sample_id: one for one in responses_of(experiment, shard)}
            first = min((one.times.start for one in answers.values()), default=0)
            for sample in samples(iterator, chosen, shard.start, shard.stop, images=False):
                if (response := answers.get(sample.id)) is not None:
                    began = created + timedelta(microseconds=(response.times.start - first) / 1000)
                    messages = prompt.build(sample)
                    yield span(experiment.id, run_task, sample, messages, response, began)


def span(
    experiment: str,
    run_task: ResolvedRunTask,
    sample: Sample,
    messages: Sequence[Message],
    response: Response,
    began: datetime,
) -> dict[str, Any]:
    """One span: what was asked, what came back, how long it took."""
    identity = hashlib.sha256(f"{experiment}/{run_task.name}/{sample.id}".encode()).hexdigest()
    took = timedelta(microseconds=(response.times.done - response.times.start) / 1000)
    attributes: dict[str, Any] = {
        "llm.model_name": run_task.model.name,
        "llm.invocation_parameters": run_task.task.generation.model_dump_json(),
        "input.value": messages[-1].text,
        "output.value": response.text or "",
        "metadata": json.dumps(
            {
                "experiment": experiment, "run_task": run_task.name, "sample": sample.id,
                "dataset": run_task.dataset.name, "document": sample.document, "prompt": response.prompt,
                "outcome": response.outcome, "tries": response.tries, "references": sample.references,
                "images": response.image_sha256, **sample.metadata,
            },
            ensure_ascii=False, default=str,
        ),
    }  # fmt: skip
    for number, message in enumerate(messages):
        attributes[f"llm.input_messages.{number}.message.role"] = message.role
        attributes[f"llm.input_messages.{number}.message.content"] = message.text
    if response.text is not None:
        attributes["llm.output_messages.0.message.role"] = "assistant"
        attributes["llm.output_messages.0.message.content"] = response.text
    for ours, theirs in (("prompt_tokens", "prompt"), ("completion_tokens", "completion")):
        if response.usage and ours in response.usage:
            attributes[f"llm.token_count.{theirs}"] = response.usage[ours]
    good = response.outcome in ("ok", "truncated")
    return {
        "name": run_task.name,
        "context": {"trace_id": identity[:32], "span_id": identity[32:48]},
        "span_kind": "LLM",
        "start_time": began.astimezone(timezone.utc).isoformat(),
        "end_time": (began + took).astimezone(timezone.utc).isoformat(),
        "status_code": "OK" if good else "ERROR",
        "status_message": "" if good else response.error or response.outcome,
        "attributes": attributes,
    }


class _Phoenix:
    """The three requests that an export needs."""

    def __init__(self, url: str, project: str, headers: Mapping[str, str]) -> None:
        self._url, self._project, self._headers = url, project, headers

    def make_project(self) -> None:
        status, _ = self._call("GET", f"/v1/projects/{quote(self._project, safe='')}")
        if status == 404:
            self._must(*self._call("POST", "/v1/projects", {"name": self._project}))

    def send(self, spans: Sequence[Mapping[str, Any]]) -> int:
        """Send spans; a batch with one that is there already is refused whole, so the others go again."""
        path = f"/v1/projects/{quote(self._project, safe='')}/spans"
        status, told = self._call("POST", path, {"data": spans})
        known = (
            {one["span_id"] for one in told.get("duplicate_spans", ())} if status == 400 else set()
        )
        if known:
            fresh = [one for one in spans if one["context"]["span_id"] not in known]
            return self.send(fresh) if fresh else 0
        self._must(status, told)
        return len(spans)

    def _must(self, status: int, told: Mapping[str, Any]) -> None:
        if status >= 300:
            why = str(told.get("error") or told.get("detail") or told)[:200]
            remedy = "an API key may be missing" if status in (401, 403) else None
            raise EnvironmentFault(f"{self._url} answers {status}: {why}", remedy=remedy)

    def _call(self, method: str, path: str, data: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and JSON of an answer; tried again while the server cannot take it.

        Raises:
            EnvironmentFault: it cannot be reached.
        """
        body = json.dumps(data, ensure_ascii=False).encode() if data is not None else None
        headers = {"Content-Type": "application/json", **self._headers}
        for attempt in range(1, TRIES + 1):
            request = urllib.request.Request(  # noqa: S310 - the user's own address
                self._url + path, data=body, headers=headers, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
                    return reply.status, _json(reply.read())
            except urllib.error.HTTPError as error:
                with error:  # it is the open answer, too
                    if (error.code < 500 and error.code != 429) or attempt == TRIES:
                        return error.code, _json(error.read())
            except (urllib.error.URLError, OSError, ValueError) as error:
                if attempt == TRIES or isinstance(error, ValueError):
                    why = getattr(error, "reason", error)
                    raise EnvironmentFault(
                        f"{self._url} cannot be reached: {why}", remedy="is Phoenix running there?"
                    ) from error
            time.sleep(attempt)
        raise AssertionError("unreachable")


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {"error": data[:200].decode(errors="replace")}
    return found if isinstance(found, dict) else {}
