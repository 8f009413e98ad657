"""Weights & Biases: a group for each experiment, a run for each run task, and a table of its samples.

hpcbench chooses the ids of runs, so that a second transfer continues the first one's. Figures are the run's
summary, and stay one value each; counts during the run are its history. Offline runs are in the experiment's
directory until `wandb sync` sends them to a server.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.installed import install_hint
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.tracking.experiment_content import (
    Exchange,
    files_of,
    parameters_of,
    scores_file,
)
from hpcbench.tracking.feed import Sink
from hpcbench.tracking.sent import Notes
from hpcbench.tracking.server_requests import Web
from hpcbench.tracking.tracker_process import ServerOptions, ServerTracker

ROWS = 10_000
"""Rows of a table that W&B shows."""

_UNFIT = re.compile(r"[^\w\-.]")


class WandbOptions(ServerOptions):
    """Options of the wandb tracker."""

    project: str = ""
    """Its project; none: the plan's name."""
    entity: str | None = None
    """User or team; none: the key's own."""
    mode: Literal["online", "offline"] = "online"
    """`offline`: written to files, for `wandb sync`."""
    url: str | None = None
    """Address of the user's own server; none: wandb.ai."""
    api_key: str | None = Field(default=None, repr=False)
    """A reference, `${env:WANDB_API_KEY}`; none: what `wandb login` has left."""


class WandbTracker(ServerTracker):
    """Sends figures, parameters, files and samples to runs of Weights & Biases."""

    Options: ClassVar[type[ServerOptions]] = WandbOptions
    options: WandbOptions

    def destination(self, experiment: Experiment) -> Mapping[str, Any]:
        """Server, entity, project, and whether data are only written to files."""
        options = self.options
        return {
            "url": options.url, "entity": options.entity, "mode": _mode(options),
            "project": options.project or experiment.resolved.plan.name,
        }  # fmt: skip

    def sink(self, experiment: Experiment, notes: Notes) -> WandbSink:
        """The experiment's runs there."""
        return WandbSink(self.options, experiment)


class WandbSink(Sink):
    """An experiment's runs at Weights & Biases; a run is opened when there is something to send."""

    wants: ClassVar[frozenset[str]] = frozenset({"figures", "progress", "files", "table"})
    late: ClassVar[bool] = True

    def __init__(self, options: WandbOptions, experiment: Experiment) -> None:
        self._options, self._experiment = options, experiment
        self._runs = dict[str, Any]()
        """Run task → its open run."""
        self._wandb: Any = None
        self._files = False
        """Whether there are new files."""

    def open(self) -> None:
        """Check that the server answers, and load the client."""
        if _mode(self._options) == "online":
            url = self._options.url or os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
            Web(
                url, {}, timeout=self._options.timeout, ca_file=self._options.ca_file, name="W&B"
            ).call("GET", "/healthz", None, {})
        self._wandb = _client(self._options)

    def figures(self, run_task: ResolvedRunTask, figures: Mapping[str, float], step: int) -> None:
        """Set the run's summary."""
        self._run(run_task).summary.update(dict(figures))

    def progress(self, run_task: ResolvedRunTask, figures: Mapping[str, float], step: int) -> None:
        """Add a point to the run's history; W&B accepts none before its last one."""
        self._run(run_task).log(dict(figures), step=step)

    def file(self, run_task: ResolvedRunTask | None, name: str, path: Path) -> None:
        """Note a new file: it causes a new version of the experiment's artifact, which contains all files."""
        self._files = True

    def exchanges(self, run_task: ResolvedRunTask, found: Sequence[Exchange]) -> int:
        """A table of the run, one row for each sample."""
        metrics = list(dict.fromkeys(name for one in found for name in one.scores))
        about = ["sample", "document", "outcome", "prompt", "response", "references", "images"]
        table = self._wandb.Table(columns=[*about, "tokens", "seconds", *metrics])
        shown = found[:ROWS]
        for one in shown:
            usage = one.response.usage or {}
            table.add_data(
                one.sample.id, one.sample.document, one.response.outcome,
                "\n".join(f"{each.role}: {each.text}" for each in one.messages),
                one.response.text, "\n".join(str(each) for each in one.sample.references),
                " ".join(one.response.image_sha256), usage.get("completion_tokens"),
                one.took.total_seconds(), *(one.scores.get(name) for name in metrics),
            )  # fmt: skip
        self._run(run_task).log({"samples": table})
        return len(shown)

    def close(self, state: str | None) -> None:
        """Finish the opened runs; the client waits until all data are sent."""
        if self._files:
            self._log_files()
        runs, self._runs = self._runs, {}
        for run in runs.values():
            if state is not None:
                run.summary["state"] = state
            run.finish(exit_code=0 if state in ("done", None) else 1)

    def _log_files(self) -> None:
        """All files of an experiment in one artifact, with its first run task."""
        here, run_tasks = self._experiment, self._experiment.resolved.run_tasks
        artifact = self._wandb.Artifact(_fit(here.id)[-120:], type="hpcbench")
        found = files_of(here)
        for run_task in run_tasks:
            found |= scores_file(here, run_task.name)
        for name, path in found.items():
            artifact.add_file(str(path), name=name)
        self._run(run_tasks[0]).log_artifact(artifact)
        self._files = False

    def _run(self, run_task: ResolvedRunTask) -> Any:
        if run_task.name not in self._runs:
            options, experiment = self._options, self._experiment
            try:
                self._runs[run_task.name] = self._wandb.init(
                    id=run_id(experiment, run_task), resume="allow", reinit="create_new",
                    project=options.project or experiment.resolved.plan.name, entity=options.entity,
                    group=experiment.id, name=run_task.name, job_type=run_task.ml_task.name,
                    config=parameters_of(experiment, run_task), mode=_mode(options),
                    dir=str(experiment.tracked_dir), settings=self._settings(),
                )  # fmt: skip
            except Exception as error:
                raise EnvironmentFault(f"W&B: {' '.join(str(error).split())}") from error
        return self._runs[run_task.name]

    def _settings(self) -> Any:
        return self._wandb.Settings(
            silent=True, console="off", disable_git=True, save_code=False, disable_code=True,
            disable_job_creation=True, x_disable_stats=True, x_disable_meta=True, x_save_requirements=False,
            init_timeout=self._options.timeout,
        )  # fmt: skip


def run_id(experiment: Experiment, run_task: ResolvedRunTask) -> str:
    """Id of a run: readable where it fits into W&B's 64 characters."""
    name = _fit(f"{experiment.id}-{run_task.name}")
    if len(name) <= 64 and name == f"{experiment.id}-{run_task.name}":
        return name
    return hashlib.sha256(f"{experiment.id}/{run_task.name}".encode()).hexdigest()[:32]


def _mode(options: WandbOptions) -> str:
    """The plan's mode; the environment may force offline, as everywhere with W&B."""
    return "offline" if os.environ.get("WANDB_MODE") == "offline" else options.mode


def _client(options: WandbOptions) -> Any:
    """W&B's client; environment variables of this process set values that it has no arguments for."""
    given = {
        "WANDB_API_KEY": options.api_key, "WANDB_BASE_URL": options.url,
        "SSL_CERT_FILE": options.ca_file, "REQUESTS_CA_BUNDLE": options.ca_file,
    }  # fmt: skip
    os.environ |= {name: value for name, value in given.items() if value is not None}
    os.environ |= {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    try:
        import wandb
    except ImportError as error:
        raise EnvironmentFault(
            f"W&B's client is not installed: {error}", remedy=install_hint("wandb")
        ) from error
    return wandb


def _fit(name: str) -> str:
    return _UNFIT.sub("_", name)
