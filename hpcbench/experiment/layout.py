"""Where everything of an experiment lies. No other room joins paths below an experiment.

EXPERIMENT/
  plan.yaml               the plan as written
  resolved.json           the plan with every name resolved
  kept/                   files that documents name by path, as they were, see `submit/kept_files.py`
  chosen.json             run task → places of its samples in the dataset
  manifest.json           versions, digests, hashes, seeds, shards and groups
  submission.jsonl        intents and job ids, one writer at a time
  environments.jsonl      environments that it was resumed in
  control/                NNNNN.json: what people want of it while it runs
  looks/                  RUN_TASK.NN.json: what was found at each look at its two arms, see `hpcbench ab`
  shards/RUN_TASK/        NNNNN.A.events.jsonl (the claim of attempt A), NNNNN.A.responses.jsonl;
                          in the end all of them in one file, `folded.py`
  workers/                GROUP.OWNER.events.jsonl, GROUP.OWNER.log (wrapper and engine)
  jobs/                   submitit's files and Slurm's own logs
  scores/RUN_TASK.parquet one row a sample; where metrics score fields, beside it RUN_TASK.fields.parquet, one
                          row a field of a sample
  metrics.json            aggregates; the same bytes for the same answers
  performance.json        times and tokens
  usage.json              GPU-hours: allocated, used, wasted and by what
  outcome.json            how it ended
  summary.json            what its report says first, in blocks of Markdown
  history.json            seconds of a sample and of a load, for estimates of later experiments
  report/                 what the plan's reports write; verdict.json, what a gate said
  tracked/                what was sent to which tracker, see `tracked.py`
  told.jsonl              notifications: owed, sent, failed; told.lock while somebody sends
  rescored/NAME/          scores/ and metrics.json of other metrics or options, see `hpcbench score`
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcbench.errors import Problem, UserError, nearest, unknown
from hpcbench.experiment.baselines import Baseline, baselines, current
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import Tell, read_json
from hpcbench.schema.documents import Site
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask, WorkPlan

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_CLAIM = re.compile(r"([0-9]{5,})\.([0-9]+)\.events\.jsonl")


def home(site: Site | None = None) -> Path:
    """Folder of experiments and caches: `HPCBENCH_HOME`, the site's, or `~/hpcbench`."""
    chosen = os.environ.get("HPCBENCH_HOME") or (site.home if site else None) or "~/hpcbench"
    return Path(os.path.expandvars(chosen)).expanduser().absolute()


def new_id(name: str) -> str:
    """A readable, sortable id such as `20261120-1432-demo-k3f9`."""
    tail = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return f"{time.strftime('%Y%m%d-%H%M')}-{name}-{tail}"


@dataclass(frozen=True)
class Experiment:
    """One experiment's directory."""

    path: Path
    """The directory; its name is the experiment's id."""

    @property
    def id(self) -> str:
        """The experiment's id."""
        return self.path.name

    def use_packages(self) -> None:
        """Make the plugins of the plan's packages importable in this process."""
        folder = self.manifest.get("host_packages")
        if folder is not None:
            from hpcbench import plugins  # which looks through all that is installed

            plugins.add_folder(Path(str(folder)))

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.yaml"

    @property
    def resolved_file(self) -> Path:
        return self.path / "resolved.json"

    @property
    def kept_dir(self) -> Path:
        """Files that documents name by path, as they were."""
        return self.path / "kept"

    @property
    def kept_file(self) -> Path:
        """Which path is which of them."""
        return self.kept_dir / "kept.json"

    @property
    def chosen_file(self) -> Path:
        return self.path / "chosen.json"

    @cached_property
    def _chosen(self) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = read_json(self.chosen_file)
        return found

    def chosen(self, run_task: str) -> list[tuple[int, int]]:
        """Places of a run task's samples in its dataset: from, to (exclusive), in order."""
        return self._chosen[run_task]

    def skipped(self, run_task: str) -> int:
        """Samples among those it asks about that nobody can use."""
        return self._measured("skipped", run_task)

    def unusable(self, run_task: str) -> int:
        """All samples of its dataset that nobody can use, whether it asks about them or not."""
        return self._measured("unusable", run_task) or self.skipped(run_task)

    def dataset_samples(self, run_task: str) -> int:
        """Samples there were in its dataset when it was prepared; 0: nobody wrote it down."""
        return self._measured("dataset_samples", run_task)

    def _measured(self, what: str, run_task: str) -> int:
        measured: Any = self.manifest["measured"]
        return int(measured.get(what, {}).get(run_task, 0))

    @property
    def cache_dir(self) -> Path:
        """`HOME/cache`, where rendered pages are."""
        return self.path.parent.parent / "cache"

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    @property
    def environments_file(self) -> Path:
        """Environments it was resumed in after submit's, see `submit/fingerprint.py`."""
        return self.path / "environments.jsonl"

    @property
    def submission_file(self) -> Path:
        return self.path / "submission.jsonl"

    @property
    def control_dir(self) -> Path:
        """What people want of it, see `control.py`."""
        return self.path / "control"

    @property
    def looks_dir(self) -> Path:
        """What was found of arms while they ran, see `looks.py`."""
        return self.path / "looks"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.json"

    @property
    def performance_file(self) -> Path:
        return self.path / "performance.json"

    @property
    def usage_file(self) -> Path:
        """What it took of the cluster, see `usage/report.py`."""
        return self.path / "usage.json"

    @property
    def history_file(self) -> Path:
        """How long it took, for estimates of later ones, see `usage/history.py`."""
        return self.path / "history.json"

    @property
    def outcome_file(self) -> Path:
        """How the experiment ended, see `finalise.py`."""
        return self.path / "outcome.json"

    @property
    def summary_file(self) -> Path:
        """What its report says first, see `reporting/`."""
        return self.path / "summary.json"

    @property
    def report_dir(self) -> Path:
        return self.path / "report"

    @property
    def verdict_file(self) -> Path:
        """What a gate said of it last, see `gate/`."""
        return self.report_dir / "verdict.json"

    @property
    def tracked_dir(self) -> Path:
        """What was sent to which tracker, see `tracked.py`."""
        return self.path / "tracked"

    @property
    def told_file(self) -> Path:
        """Who was told what, and who is to be told yet, see `notify/dispatch.py`."""
        return self.path / "told.jsonl"

    @property
    def jobs_dir(self) -> Path:
        return self.path / "jobs"

    @property
    def workers_dir(self) -> Path:
        return self.path / "workers"

    def shards_dir(self, run_task: str) -> Path:
        return self.path / "shards" / run_task

    @property
    def scores_dir(self) -> Path:
        """Scores of its plan's metrics, see `evaluation/scores.py`."""
        return self.path / "scores"

    def scores_file(self, run_task: str) -> Path:
        return self.scores_dir / f"{run_task}.parquet"

    def rescored_dir(self, name: str) -> Path:
        """Scores by other metrics or options than the plan's."""
        return self.path / "rescored" / name

    def shard_events(self, run_task: str, index: int, attempt: int) -> Path:
        return self.shards_dir(run_task) / events_name(index, attempt)

    def shard_responses(self, run_task: str, index: int, attempt: int) -> Path:
        return self.shards_dir(run_task) / responses_name(index, attempt)

    def shards(self, run_task: str) -> Folder:
        """What all attempts at a run task's shards wrote, loose or folded, as one look finds it."""
        return Folder(self.shards_dir(run_task))

    def attempts(self, run_task: str) -> dict[int, list[int]]:
        """Attempts of each shard that has any, in order, from one look at the folder."""
        return attempts_in(self.shards(run_task).names)

    def worker_events(self, group: str, owner: str) -> Path:
        return self.workers_dir / f"{group}.{owner}.events.jsonl"

    def worker_log(self, group: str, owner: str) -> Path:
        return self.workers_dir / f"{group}.{owner}.log"

    def worker_monitor(self, group: str, owner: str) -> Path:
        return self.workers_dir / f"{group}.{owner}.monitor.jsonl"

    def workers(self) -> Folder:
        """What all workers wrote, loose or folded, as one look finds it."""
        return Folder(self.workers_dir)

    def worker_records(
        self, tell: Tell | None = None
    ) -> Iterator[tuple[Path, Iterator[dict[str, Any]]]]:
        """Events of every worker there ever was, by name: the file they stand in, or stood in, and they."""
        folder = self.workers()
        for name in sorted(folder.names):
            if name.endswith(".events.jsonl"):
                yield folder.path / name, folder.records(name, tell)

    def worker_event_files(self) -> list[Path]:
        """Event files of workers that are not folded yet, by name; `worker_records` reads them all."""
        return sorted(self.workers_dir.glob("*.events.jsonl"))

    @cached_property
    def resolved(self) -> ResolvedPlan:
        """The resolved plan, as submit wrote it."""
        return ResolvedPlan.model_validate_json(self.resolved_file.read_text(encoding="utf-8"))

    def alone(self, run_task: str) -> ResolvedPlan:
        """The resolved plan for whoever wants one run task of it: others may be left out.

        Args:
            run_task: its name; where the plan has none of that name it is not there.
        """
        return self.resolved

    def run_task(self, name: str) -> ResolvedRunTask:
        """The run task of that name.

        Raises:
            UserError: the plan has none.
        """
        try:
            return self.alone(name).run_task(name)
        except KeyError:
            known = [one.name for one in self.resolved.run_tasks]
            what = f"{self.id}: {unknown('run task', name, known)}"
            raise UserError(what) from None

    @cached_property
    def manifest(self) -> dict[str, object]:
        """The manifest, as submit wrote it."""
        data = read_json(self.manifest_file)
        assert isinstance(data, dict)
        return data

    @cached_property
    def work(self) -> WorkPlan:
        """Groups and shards, as submit planned them."""
        return WorkPlan.model_validate(self.manifest["work"])


def events_name(index: int, attempt: int) -> str:
    """Name of the events of an attempt at a shard."""
    return f"{index:05d}.{attempt}.events.jsonl"


def responses_name(index: int, attempt: int) -> str:
    """Name of the answers of an attempt at a shard."""
    return f"{index:05d}.{attempt}.responses.jsonl"


def attempts_in(names: Iterable[str]) -> dict[int, list[int]]:
    """Attempts of each shard that has any, in order, by the names of files."""
    found: dict[int, list[int]] = {}
    for name in names:
        if name.endswith(".events.jsonl") and (match := _CLAIM.fullmatch(name)):
            found.setdefault(int(match[1]), []).append(int(match[2]))
    for attempts in found.values():
        attempts.sort()
    return found


def experiments_dir(root: Path) -> Path:
    """Where experiments of a home lie."""
    return root / "experiments"


def all_experiments(root: Path) -> Iterator[Experiment]:
    """Experiments of a home that we may read, oldest first."""
    folder = experiments_dir(root)
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.name[0] != "." and os.access(path / "manifest.json", os.R_OK):
                yield Experiment(path)


def private_experiments(root: Path) -> list[Path]:
    """Folders in which others of this home may have experiments that we may not read."""
    folder = experiments_dir(root)
    if not folder.is_dir():
        return []

    def private(path: Path) -> bool:
        if not os.access(path, os.R_OK | os.X_OK):
            return True
        manifest = path / "manifest.json"
        return manifest.exists() and not os.access(manifest, os.R_OK)

    found = (path for path in folder.iterdir() if path.name[0] != "." and path.is_dir())
    return sorted(filter(private, found))


def find(root: Path, wanted: str) -> Experiment:
    """The experiment of an id, a unique beginning of one, a baseline's name, a path, or `@last`.

    Raises:
        UserError: there is none, or more than one.
    """
    if not wanted.strip():  # an unset variable of a shell; it would begin every id
        raise UserError("the name of an experiment is empty", remedy="an id, a path or @last")
    if "/" in wanted:
        return _at_path(Path(wanted))
    known = list(all_experiments(root))
    if wanted == "@last" and known:
        return max(known, key=lambda experiment: experiment.manifest_file.stat().st_mtime)
    matches = [experiment for experiment in known if experiment.id.startswith(wanted)]
    exact = [experiment for experiment in matches if experiment.id == wanted]
    if not exact and (named := current(root, wanted)) is not None:
        return named_by(root, named)
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    if not matches and (Path(wanted) / "manifest.json").is_file():
        return Experiment(Path(wanted).resolve())
    remedy = "`hpcbench list` shows them"
    if not matches:
        there = [*(one.id for one in known), *(one.name for one in baselines(root))]
        close = nearest(wanted, there)
        meant = f"did you mean '{close}'? " if close else ""
        raise UserError(Problem(f"no experiment '{wanted}' in {root}", remedy=meant + remedy))
    names = ", ".join(experiment.id for experiment in matches[:5])
    raise UserError(Problem(f"'{wanted}' fits several experiments: {names}", remedy=remedy))


def _at_path(path: Path) -> Experiment:
    if (path / "manifest.json").is_file():
        return Experiment(path.resolve())
    remedy = "`hpcbench list` shows experiments"
    if not path.exists():
        raise UserError(Problem("no such folder", str(path), remedy=remedy))
    what = "not the folder of an experiment: it holds no manifest.json"
    raise UserError(Problem(what, str(path), remedy=remedy))


def named_by(root: Path, baseline: Baseline) -> Experiment:
    """The experiment that a baseline's name stands for.

    Raises:
        UserError: it is gone.
    """
    meant = str(baseline.experiment)
    experiment = Experiment(Path(meant) if "/" in meant else experiments_dir(root) / meant)
    if not experiment.manifest_file.is_file():
        remedy = f"`hpcbench baseline set EXPERIMENT --name {baseline.name}` names another one"
        raise UserError(
            Problem(f"baseline '{baseline.name}' names {meant}, which is gone", remedy=remedy)
        )
    return experiment
