"""Where everything of an experiment lies. No other room joins paths below an experiment.

EXPERIMENT/
  plan.yaml               the plan as written
  resolved.json           the plan with every name resolved
  chosen.json             run task → places of its samples in the dataset
  manifest.json           versions, digests, hashes, seeds, shards and groups
  submission.jsonl        intents and job ids, one writer at a time
  shards/RUN_TASK/        NNNNN.A.events.jsonl (the claim of attempt A), NNNNN.A.responses.jsonl
  workers/                GROUP.OWNER.events.jsonl, GROUP.OWNER.log (wrapper and engine)
  jobs/                   submitit's files and Slurm's own logs
  scores/RUN_TASK.parquet one row a sample
  metrics.json            aggregates; the same bytes for the same answers
  performance.json        times and tokens
  report/                 what the plan's reports write
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.files import read_json
from hpcbench.schema.documents import Site
from hpcbench.schema.plan import ResolvedPlan, WorkPlan

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
            plugins.add_folder(Path(str(folder)))

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.yaml"

    @property
    def resolved_file(self) -> Path:
        return self.path / "resolved.json"

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
        """Samples of its dataset that nobody can read."""
        measured: Any = self.manifest["measured"]
        return int(measured.get("skipped", {}).get(run_task, 0))

    @property
    def cache_dir(self) -> Path:
        """`HOME/cache`, where rendered pages are."""
        return self.path.parent.parent / "cache"

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    @property
    def submission_file(self) -> Path:
        return self.path / "submission.jsonl"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.json"

    @property
    def performance_file(self) -> Path:
        return self.path / "performance.json"

    @property
    def report_dir(self) -> Path:
        return self.path / "report"

    @property
    def jobs_dir(self) -> Path:
        return self.path / "jobs"

    @property
    def workers_dir(self) -> Path:
        return self.path / "workers"

    def shards_dir(self, run_task: str) -> Path:
        return self.path / "shards" / run_task

    def scores_file(self, run_task: str) -> Path:
        return self.path / "scores" / f"{run_task}.parquet"

    def shard_events(self, run_task: str, index: int, attempt: int) -> Path:
        return self.shards_dir(run_task) / f"{index:05d}.{attempt}.events.jsonl"

    def shard_responses(self, run_task: str, index: int, attempt: int) -> Path:
        return self.shards_dir(run_task) / f"{index:05d}.{attempt}.responses.jsonl"

    def attempts(self, run_task: str) -> dict[int, list[int]]:
        """Attempts of each shard that has any, in order, from one look at the folder."""
        found: dict[int, list[int]] = {}
        try:
            names = [path.name for path in self.shards_dir(run_task).iterdir()]
        except FileNotFoundError:
            return {}
        for name in names:
            if match := _CLAIM.fullmatch(name):
                found.setdefault(int(match[1]), []).append(int(match[2]))
        return {index: sorted(attempts) for index, attempts in found.items()}

    def worker_events(self, group: str, owner: str) -> Path:
        return self.workers_dir / f"{group}.{owner}.events.jsonl"

    def worker_log(self, group: str, owner: str) -> Path:
        return self.workers_dir / f"{group}.{owner}.log"

    def worker_monitor(self, group: str, owner: str) -> Path:
        return self.workers_dir / f"{group}.{owner}.monitor.jsonl"

    def worker_event_files(self) -> list[Path]:
        """Event files of all workers there ever were, by name."""
        return sorted(self.workers_dir.glob("*.events.jsonl"))

    @cached_property
    def resolved(self) -> ResolvedPlan:
        """The resolved plan, as submit wrote it."""
        return ResolvedPlan.model_validate_json(self.resolved_file.read_text(encoding="utf-8"))

    @cached_property
    def manifest(self) -> dict[str, object]:
        """The manifest, as submit wrote it."""
        data = read_json(self.manifest_file)
        assert isinstance(data, dict)
        return data

    @cached_property
    def work(self) -> WorkPlan:
        """Groups and shards, as submit planned them."""
        return WorkPlan.model_validate_json(json.dumps(self.manifest["work"]))


def experiments_dir(root: Path) -> Path:
    """Where experiments of a home lie."""
    return root / "experiments"


def all_experiments(root: Path) -> Iterator[Experiment]:
    """Experiments of a home, oldest first."""
    folder = experiments_dir(root)
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if (path / "manifest.json").is_file():
                yield Experiment(path)


def find(root: Path, wanted: str) -> Experiment:
    """The experiment of an id, a unique beginning of one, a path, or `@last`.

    Raises:
        UserError: there is none, or more than one.
    """
    if "/" in wanted and (Path(wanted) / "manifest.json").is_file():
        return Experiment(Path(wanted).resolve())
    known = list(all_experiments(root))
    if wanted == "@last" and known:
        return max(known, key=lambda experiment: experiment.manifest_file.stat().st_mtime)
    matches = [experiment for experiment in known if experiment.id.startswith(wanted)]
    exact = [experiment for experiment in matches if experiment.id == wanted]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    remedy = "`hpcbench list` shows them"
    if not matches:
        raise UserError(Problem(f"no experiment '{wanted}' in {root}", remedy=remedy))
    names = ", ".join(experiment.id for experiment in matches[:5])
    raise UserError(Problem(f"'{wanted}' fits several experiments: {names}", remedy=remedy))
