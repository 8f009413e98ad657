"""MLflow: a run for each experiment, a child run for each run task, and a trace for each sample.

Tags identify runs. hpcbench chooses the ids of traces and sends traces as OTLP, which MLflow 3.4 or newer
accepts on a database: a trace that is sent twice exists once. Times of traces are those of `Exchange`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.installed import install_hint
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.tracking.experiment_content import Exchange, parameters_of
from hpcbench.tracking.feed import Sink
from hpcbench.tracking.sent import Notes
from hpcbench.tracking.server_requests import Web
from hpcbench.tracking.tracker_process import ServerOptions, ServerTracker, TokenOptions

TAG, PART = "hpcbench.experiment", "hpcbench.part"
"""Tags of runs: the experiment's id; name of the run task, or `WHOLE`."""

WHOLE = "(experiment)"

LONGEST = 500
"""Characters of a parameter that every version of MLflow accepts."""

AT_ONCE = 100
"""Most parameters that MLflow accepts in one request."""

_STATUS = {"done": "FINISHED", "incomplete": "FAILED", "cancelled": "KILLED"}
_UNFIT = re.compile(r"[^\w\-. :/]")


class MlflowOptions(TokenOptions):
    """Options of the mlflow tracker."""

    url: str
    """Address of the tracking server, `https://…`."""
    experiment: str = ""
    """Name of MLflow's experiment; none: the plan's."""
    token: str | None = Field(default=None, repr=False)
    """Sent as bearer token; a reference, `${env:MLFLOW_TRACKING_TOKEN}`."""
    username: str | None = None
    """With a password, instead of a token."""
    password: str | None = Field(default=None, repr=False)
    """A reference."""


class MlflowTracker(ServerTracker):
    """Sends figures, parameters and files to runs of an MLflow server, and a trace for each sample."""

    Options: ClassVar[type[ServerOptions]] = MlflowOptions
    options: MlflowOptions

    def destination(self, experiment: Experiment) -> Mapping[str, Any]:
        """Address of the server and name of the experiment there."""
        return {"url": self.options.url, "experiment": self._name(experiment)}

    def sink(self, experiment: Experiment, notes: Notes) -> MlflowSink:
        """The experiment's runs there."""
        return MlflowSink(self.options, self._name(experiment), experiment, notes)

    def _name(self, experiment: Experiment) -> str:
        return self.options.experiment or experiment.resolved.plan.name


class MlflowSink(Sink):
    """An experiment's runs at an MLflow server."""

    wants: ClassVar[frozenset[str]] = frozenset({"figures", "progress", "files", "exchanges"})

    def __init__(
        self, options: MlflowOptions, name: str, experiment: Experiment, notes: Notes
    ) -> None:
        self._options, self._name = options, name
        self._experiment, self._notes = experiment, notes
        self._bearer = options.bearer()
        self._web = Web(
            options.url, {} if self._bearer else _authorization(options), timeout=options.timeout,
            ca_file=options.ca_file, name="MLflow", bearer=self._bearer,
        )  # fmt: skip
        self._runs = dict[str, str]()
        """Part → id of its run."""
        self._figures = dict[str, dict[str, float]]()
        """Id of a run → its figures at the server."""

    def open(self) -> None:
        """Find or create the runs; one cheap request first detects a server that does not answer."""
        status, answer = self._web.call("GET", "/version", None, {})
        if status != 200:
            self._web.must(status, {"error": answer.decode(errors="replace")})
        self._opened = _client(self._options)
        with _translated_errors():
            self._place = self._experiment_id()
            noted = self._notes.get("run", WHOLE)
            if noted is not None and not self._is_there(noted):
                self._notes.forget()
            parent = self._run(
                WHOLE, None, self._experiment.id, self._experiment.resolved.run_tasks[0]
            )
            for run_task in self._experiment.resolved.run_tasks:
                self._run(run_task.name, parent, run_task.name, run_task)

    @property
    def _client(self) -> Any:
        """MLflow's client, which reads the token from the environment at each request."""
        if self._bearer is not None:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self._bearer.token()
        return self._opened

    def figures(self, run_task: ResolvedRunTask, figures: Mapping[str, float], step: int) -> None:
        """Send figures that differ from the server's."""
        run = self._runs[run_task.name]
        with _translated_errors():
            known = self._figures.setdefault(run, dict(self._client.get_run(run).data.metrics))
            new = {_fit(name): value for name, value in figures.items()}
            new = {name: value for name, value in new.items() if known.get(name) != value}
            self._log(run, new, step)
            known.update(new)

    def progress(self, run_task: ResolvedRunTask, figures: Mapping[str, float], step: int) -> None:
        """Send one point of each figure."""
        with _translated_errors():
            self._log(self._runs[run_task.name], figures, step)

    def file(self, run_task: ResolvedRunTask | None, name: str, path: Path) -> None:
        """An artefact of the run; replaces one with that name."""
        run = self._runs[run_task.name if run_task is not None else WHOLE]
        folder = str(Path(name).parent)
        with _translated_errors():
            self._client.log_artifact(run, str(path), None if folder == "." else folder)

    def exchanges(self, run_task: ResolvedRunTask, found: Sequence[Exchange]) -> int:
        """A trace for each exchange, linked to the run."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        run = self._runs[run_task.name]
        request = ExportTraceServiceRequest()
        spans = request.resource_spans.add().scope_spans.add().spans
        for one in found:
            _fill(spans.add(), one, one.name_at(self._place))
        headers = {
            "Content-Type": "application/x-protobuf", "x-mlflow-experiment-id": self._place,
        }  # fmt: skip
        status, answer = self._web.call("POST", "/v1/traces", request.SerializeToString(), headers)
        if status in (404, 405, 501):
            raise EnvironmentFault(
                f"{self._options.url} does not accept traces",
                remedy="run MLflow 3.4 or later on a database, or set `samples: 0` to send no traces",
            )
        self._web.must(status, {"error": answer.decode(errors="replace")})
        with _translated_errors():
            self._client.link_traces_to_run(
                [f"tr-{one.name_at(self._place)[:32]}" for one in found], run
            )
        return len(found)

    def close(self, state: str | None) -> None:
        """Set the experiment's final state on all runs."""
        if state is None:
            return
        with _translated_errors():
            for run in reversed(self._runs.values()):
                if self._client.get_run(run).info.status != _STATUS.get(state, "FAILED"):
                    self._client.set_terminated(run, _STATUS.get(state, "FAILED"))

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self._name)
        if found is None:
            try:
                return str(self._client.create_experiment(self._name))
            except Exception:
                found = self._client.get_experiment_by_name(self._name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise EnvironmentFault(
                f"MLflow's experiment '{self._name}' is deleted there",
                remedy="restore it, or name another one: `experiment: NAME`",
            )
        return str(found.experiment_id)

    def _is_there(self, run: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            self._client.get_run(run)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise
        return True

    def _run(self, part: str, parent: str | None, name: str, run_task: ResolvedRunTask) -> str:
        """The run of a part: from the notes, found by its tags, or created."""
        run = self._notes.get("run", part) or self._found(part)
        if run is None:
            tags = {TAG: self._experiment.id, PART: part}
            if parent is not None:
                tags["mlflow.parentRunId"] = parent
            made = self._client.create_run(
                self._place, start_time=self._began(), tags=tags, run_name=name
            )
            run = str(made.info.run_id)
        self._notes.put("run", part, run)
        self._runs[part] = run
        self._parameters(run, part, run_task)
        return run

    def _found(self, part: str) -> str | None:
        """The oldest run with these tags: if two were created at once, every process uses the same."""
        wanted = f"tags.`{TAG}` = '{self._experiment.id}' AND tags.`{PART}` = '{part}'"
        found = self._client.search_runs(
            [self._place],
            wanted,
            max_results=1,
            order_by=["attributes.start_time ASC", "run_id ASC"],
        )
        return str(found[0].info.run_id) if found else None

    def _parameters(self, run: str, part: str, run_task: ResolvedRunTask) -> None:
        """Send missing parameters; MLflow does not allow changes."""
        from mlflow.entities import Param

        if self._notes.get("parameters", part) is not None:
            return
        parameters = parameters_of(self._experiment, run_task)
        if part == WHOLE:
            parameters = {
                name: parameters[name]
                for name in ("experiment", "plan", "hpcbench", "seed")
                if name in parameters
            }
        known = self._client.get_run(run).data.params
        new = [
            Param(_fit(name), _cut(one))
            for name, one in parameters.items()
            if _fit(name) not in known
        ]
        for start in range(0, len(new), AT_ONCE):
            self._client.log_batch(run, params=new[start : start + AT_ONCE])
        self._notes.put("parameters", part, str(len(parameters)))

    def _log(self, run: str, figures: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        points = [Metric(_fit(name), value, now, step) for name, value in figures.items()]
        if points:
            self._client.log_batch(run, metrics=points)

    def _began(self) -> int:
        return int(1000 * self._experiment.created.timestamp())


def _client(options: MlflowOptions) -> Any:
    """MLflow's client; environment variables of this process set values that it has no arguments for."""
    os.environ |= {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(int(options.timeout) or 1),
        # A run that is created twice stays twice: hpcbench retries, after a look.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "GIT_PYTHON_REFRESH": "quiet",
    }
    given = {
        "MLFLOW_TRACKING_TOKEN": options.token, "MLFLOW_TRACKING_USERNAME": options.username,
        "MLFLOW_TRACKING_PASSWORD": options.password,
        "MLFLOW_TRACKING_SERVER_CERT_PATH": options.ca_file,
    }  # fmt: skip
    os.environ |= {name: value for name, value in given.items() if value is not None}
    if options.auth is not None:  # MLflow prefers a user to a token
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
            os.environ.pop(name, None)
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise EnvironmentFault(
            f"MLflow's client is not installed: {error}", remedy=install_hint("mlflow")
        ) from error
    return MlflowClient(tracking_uri=options.url.rstrip("/"))


def _authorization(options: MlflowOptions) -> dict[str, str]:
    token = options.token or os.environ.get("MLFLOW_TRACKING_TOKEN")
    username = options.username or os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = options.password or os.environ.get("MLFLOW_TRACKING_PASSWORD")
    if username is not None and password is not None:
        both = base64.b64encode(f"{username}:{password}".encode()).decode()
        return {"Authorization": f"Basic {both}"}
    return {"Authorization": f"Bearer {token}"} if token else {}


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Turns the client's errors into a fault with one line."""
    try:
        yield
    except EnvironmentFault:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise EnvironmentFault(f"MLflow: {said}") from error


def _fit(name: str) -> str:
    """A name in MLflow's alphabet."""
    return _UNFIT.sub("_", name)[:250]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"


def _fill(span: Any, one: Exchange, name: str) -> None:
    """A span of OTLP with MLflow's attributes, whose values are JSON."""
    began = int(one.began.timestamp() * 10**6) * 1000
    span.trace_id = bytes.fromhex(name[:32])
    span.span_id = bytes.fromhex(name[32:48])
    span.name = one.run_task.name
    span.start_time_unix_nano = began
    span.end_time_unix_nano = began + (one.response.times.done - one.response.times.start)
    span.status.code = 1 if one.good else 2
    if not one.good:
        span.status.message = one.response.error or one.response.outcome
    usage = one.response.usage or {}
    tokens = {
        "input_tokens": usage.get("prompt_tokens", 0),
        "output_tokens": usage.get("completion_tokens", 0),
    }
    attributes: dict[str, Any] = {
        "mlflow.spanType": "CHAT_MODEL",
        "mlflow.spanInputs": {
            "messages": [{"role": each.role, "content": each.text} for each in one.messages]
        },
        "mlflow.spanOutputs": one.response.text,
        "mlflow.llm.model": one.run_task.model.name,
        "mlflow.chat.tokenUsage": {**tokens, "total_tokens": sum(tokens.values())},
        "mlflow.traceTag.hpcbench.outcome": one.response.outcome,
        "mlflow.traceTag.hpcbench.sample": one.sample.id,
        **{f"hpcbench.{name}": value for name, value in one.about().items()},
        **{f"hpcbench.score.{name}": value for name, value in one.scores.items()},
    }
    for name, value in attributes.items():
        added = span.attributes.add()
        added.key = name
        if isinstance(value, str):
            added.value.string_value = value
        elif isinstance(value, float):
            added.value.double_value = value
        elif isinstance(value, int):
            added.value.int_value = value
        else:
            added.value.string_value = json.dumps(value, ensure_ascii=False, default=str)
