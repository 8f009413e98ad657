"""Paths of all files of an experiment. No other package joins paths below an experiment.

RUN_TASK is the id of a run task's name, see `schema/names.py`.

The site has this list as the page "Files of an experiment".

EXPERIMENT/
  plan.yaml               the plan as written
  resolved.json           the plan with every name resolved
  kept/                   copies of files that definitions name by path; kept.json maps paths to them
  chosen.json             run task → places of its samples in the dataset
  manifest.json           versions, digests, hashes, seeds, shards and groups, tools of agents
  reused.json             answers of earlier experiments that submission took over
  submission.jsonl        intents and job ids, one writer at a time
  environments.jsonl      environments in which it was continued; environments.lock while one is written
  control/                NNNNN.json: control requests of people while it runs
  budget/                 NNNNN.json: parts of the budget that workers took and gave back
  looks/                  RUN_TASK.NN.json: result of each look at its two arms, see `hpcbench ab`
  shards/RUN_TASK/        NNNNN.A.events.jsonl (the claim of attempt A), NNNNN.A.responses.jsonl, of agents
                          NNNNN.A.turns.jsonl; attempt 0: answers of earlier experiments; at the end all are
                          in folded.jsonl
  workers/                GROUP.OWNER.events.jsonl, GROUP.OWNER.monitor.jsonl (readings of memory and GPUs),
                          GROUP.OWNER.log (wrapper and engine), GROUP.OWNER.rankN.log (further nodes of an
                          engine); at the end folded.jsonl and the logs
  jobs/                   submitit's files, Slurm's own logs, and seal.json: hashes of what jobs execute
  scores/RUN_TASK.parquet one row a sample; where metrics score fields, also RUN_TASK.fields.parquet, one
                          row a field of a sample
  labels/JUDGE.jsonl      human labels of the answers that a judge rates, see `hpcbench judge check --keep`
  metrics.json            aggregates; the same bytes for the same answers
  performance.json        times and tokens
  usage.json              GPU-hours: allocated, used, wasted by cause
  outcome.json            how it ended
  summary.json            the first section of its report, in blocks of Markdown
  history.json            seconds for a sample and for a load, for estimates of later experiments
  report/                 files of the plan's reports; verdict.json: a gate's verdict
  tracked/                notes of the data sent to each tracker and database
  told.jsonl              notifications: owed, sent, failed; told.lock while a process sends
  rescored/NAME/          scores/ and metrics.json of other metrics or options, see `hpcbench score`;
                          scored.json, written last: which metrics; report/ of these scores
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.errors import OTHER_FORM, RESTORE, DamagedFile, Problem, UserError, nearest, unknown
from hpcbench.experiment.baselines import Baseline, baselines, current
from hpcbench.experiment.event_log import is_event
from hpcbench.experiment.manifest import Manifest
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import Tell, read_json, read_lines
from hpcbench.number_format import few
from hpcbench.schema.decoding import decoded
from hpcbench.schema.names import id_of
from hpcbench.schema.work import Planned, WorkPlan

if TYPE_CHECKING:
    from hpcbench.schema.plan import Measured, Rescoring, ResolvedPlan, ResolvedRunTask
    from hpcbench.schema.site import Site

MANIFEST_VERSION = 1
"""Version of the manifest, and so of an experiment's whole directory."""

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_CLAIM = re.compile(r"([0-9]{5,})\.([0-9]+)\.events\.jsonl")


def home(site: Site | None = None) -> Path:
    """Folder of experiments and caches: `HPCBENCH_HOME`, the site's `home`, or `~/hpcbench`."""
    chosen = os.environ.get("HPCBENCH_HOME") or (site.home if site else None) or "~/hpcbench"
    return Path(os.path.expandvars(chosen)).expanduser().absolute()


def new_id(name: str) -> str:
    """A readable, sortable id such as `20261120-1432-demo-k3f9`."""
    import secrets  # slow import

    tail = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return f"{time.strftime('%Y%m%d-%H%M')}-{id_of(name)}-{tail}"


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
        folder = self.manifest.host_packages
        if folder is not None:
            from hpcbench import plugins  # slow import: it searches all installed packages

            plugins.add_folder(Path(folder))

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.yaml"

    @property
    def resolved_file(self) -> Path:
        return self.path / "resolved.json"

    @property
    def kept_dir(self) -> Path:
        """Copies of files that definitions name by path."""
        return self.path / "kept"

    @property
    def kept_file(self) -> Path:
        """Map from paths to these copies."""
        return self.kept_dir / "kept.json"

    @property
    def chosen_file(self) -> Path:
        return self.path / "chosen.json"

    @cached_property
    def _chosen(self) -> dict[str, list[tuple[int, int]]]:
        from pydantic import NonNegativeInt, TypeAdapter

        places = TypeAdapter(dict[str, list[tuple[NonNegativeInt, NonNegativeInt]]])
        with decoding(self.chosen_file):
            return places.validate_python(read_json(self.chosen_file))

    def chosen(self, run_task: str) -> list[tuple[int, int]]:
        """Places of a run task's samples in its dataset: from, to (exclusive), in order.

        Raises:
            DamagedFile: the file of places is damaged, or lacks the run task.
        """
        if run_task not in self._chosen:
            raise DamagedFile(self.chosen_file, f"it lacks the run task {run_task}")
        return self._chosen[run_task]

    def skipped(self, run_task: str) -> int:
        """Unusable samples in the run task's part of the dataset."""
        return self.measured.skipped.get(run_task, 0)

    def unusable(self, run_task: str) -> int:
        """All unusable samples of the run task's dataset, inside its part or not."""
        return self.measured.unusable.get(run_task, 0) or self.skipped(run_task)

    def dataset_samples(self, run_task: str) -> int:
        """Samples in the run task's dataset when it was prepared; 0: not recorded."""
        return self.measured.dataset_samples.get(run_task, 0)

    @property
    def cache_dir(self) -> Path:
        """`HOME/cache`, the folder of rendered pages."""
        return self.path.parent.parent / "cache"

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    @property
    def environments_file(self) -> Path:
        """Environments in which it was continued after submit, see `submit/fingerprint.py`."""
        return self.path / "environments.jsonl"

    def environments(self) -> Iterator[dict[str, Any]]:
        """Records of `environments_file`, oldest first: `time`, `changes` in words, `fingerprint`."""
        return read_lines(self.environments_file)

    @property
    def submission_file(self) -> Path:
        return self.path / "submission.jsonl"

    @property
    def control_dir(self) -> Path:
        """Folder of control requests, see `control.py`."""
        return self.path / "control"

    @property
    def budget_dir(self) -> Path:
        """Records of what workers spend, see `budget.py`."""
        return self.path / "budget"

    @property
    def looks_dir(self) -> Path:
        """Results of looks at running arms, see `interim.py`."""
        return self.path / "looks"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.json"

    @property
    def performance_file(self) -> Path:
        return self.path / "performance.json"

    @property
    def usage_file(self) -> Path:
        """GPU-hours of the experiment, see `usage/gpu_hours.py`."""
        return self.path / "usage.json"

    @property
    def history_file(self) -> Path:
        """Durations for estimates of later experiments, see `usage/durations.py`."""
        return self.path / "history.json"

    @property
    def reused_file(self) -> Path:
        """Answers that it took over from earlier experiments, see `reused.py`."""
        return self.path / "reused.json"

    @property
    def outcome_file(self) -> Path:
        """How the experiment ended, see `finalise.py`."""
        return self.path / "outcome.json"

    @property
    def summary_file(self) -> Path:
        """First section of its report, see `reporting/`."""
        return self.path / "summary.json"

    @property
    def report_dir(self) -> Path:
        return self.path / "report"

    @property
    def verdict_file(self) -> Path:
        """Verdict of the last gate, see `comparison/gate/`."""
        return self.report_dir / "verdict.json"

    @property
    def tracked_dir(self) -> Path:
        """Records of data sent to each tracker, see `tracking/sent.py`."""
        return self.path / "tracked"

    @property
    def told_file(self) -> Path:
        """Sent and pending notifications, see `notify/dispatch.py`."""
        return self.path / "told.jsonl"

    @property
    def jobs_dir(self) -> Path:
        return self.path / "jobs"

    @property
    def seal_file(self) -> Path:
        """Hashes of files that decide what its jobs execute, see `seal.py`."""
        return self.jobs_dir / "seal.json"

    @property
    def workers_dir(self) -> Path:
        return self.path / "workers"

    @property
    def all_shards_dir(self) -> Path:
        """Folder of the run tasks' folders."""
        return self.path / "shards"

    def shards_dir(self, run_task: str) -> Path:
        return self.all_shards_dir / id_of(run_task)

    @cached_property
    def _names(self) -> dict[str, str]:
        return {id_of(one.name): one.name for one in self.planned.run_tasks}

    def run_task_in(self, folder: str) -> str:
        """Name of the run task that a folder of shards is for."""
        return self._names.get(folder, folder) if "+" in folder else folder

    @property
    def scores_dir(self) -> Path:
        """Scores of its plan's metrics, see `view/scores.py`."""
        return self.path / "scores"

    def scores_file(self, run_task: str) -> Path:
        return self.scores_dir / f"{id_of(run_task)}.parquet"

    def labels_file(self, judge: str) -> Path:
        """Human labels for a judge, named without the mark of its repeats; see `judging/labels.py`."""
        return self.path / "labels" / f"{id_of(judge)}.jsonl"

    def rescored_dir(self, name: str) -> Path:
        """Folder of scores with other metrics or options than the plan's."""
        return self.path / "rescored" / name

    def shard_events(self, run_task: str, index: int, attempt: int) -> Path:
        return self.shards_dir(run_task) / events_name(index, attempt)

    def shard_responses(self, run_task: str, index: int, attempt: int) -> Path:
        return self.shards_dir(run_task) / responses_name(index, attempt)

    def shard_turns(self, run_task: str, index: int, attempt: int) -> Path:
        return self.shards_dir(run_task) / turns_name(index, attempt)

    def shards(self, run_task: str) -> Folder:
        """Files of all attempts at a run task's shards, loose or folded, from one listing."""
        return Folder(self.shards_dir(run_task))

    def attempts(self, run_task: str) -> dict[int, list[int]]:
        """Attempts of each shard with at least one, in order, from one listing of the folder."""
        return attempts_in(self.shards(run_task).names)

    def worker_events(self, group: str, owner: str) -> Path:
        return self.workers_dir / f"{group}.{owner}.events.jsonl"

    def worker_log(self, group: str, owner: str, rank: int = 0) -> Path:
        """Log of a rank's engine; that of rank 0 is the worker's."""
        return self.workers_dir / f"{group}.{owner}{_of_rank(rank)}.log"

    def worker_monitor(self, group: str, owner: str, rank: int = 0) -> Path:
        """Readings of a rank's monitor."""
        return self.workers_dir / f"{group}.{owner}{_of_rank(rank)}.monitor.jsonl"

    def workers(self) -> Folder:
        """Files of all workers, loose or folded, from one listing."""
        return Folder(self.workers_dir)

    def worker_records(
        self, tell: Tell | None = None
    ) -> Iterator[tuple[Path, Iterator[dict[str, Any]]]]:
        """Events file (a folded one by its old path) and events of every worker, past or present, by name."""
        folder = self.workers()
        for name in sorted(folder.names):
            if name.endswith(".events.jsonl"):
                yield folder.path / name, filter(is_event, folder.records(name, tell))

    @cached_property
    def resolved(self) -> ResolvedPlan:
        """The resolved plan, as submit wrote it. Loading its schemas takes 0.1 s: see `planned`."""
        from hpcbench.schema.plan import ResolvedPlan

        with decoding(self.resolved_file):
            return ResolvedPlan.model_validate_json(self.resolved_file.read_text(encoding="utf-8"))

    @cached_property
    def planned(self) -> Planned:
        """The part of the resolved plan that a status needs.

        Raises:
            DamagedFile: the plan is damaged, or of another version of hpcbench.
        """
        with decoding(self.resolved_file):
            return Planned.of(read_json(self.resolved_file))

    def alone(self, run_task: str) -> ResolvedPlan:
        """The resolved plan for readers of one run task: other run tasks may be left out.

        Args:
            run_task: the run task's name; the result lacks it if the plan has no such run task.
        """
        return self.resolved

    def run_task(self, name: str) -> ResolvedRunTask:
        """The run task of that name.

        Raises:
            UserError: the plan has no such run task.
        """
        try:
            return self.alone(name).run_task(name)
        except KeyError:
            known = [one.name for one in self.resolved.run_tasks]
            what = f"{self.id}: {unknown('run task', name, known)}"
            raise UserError(what) from None

    def check_run_tasks(self, names: Iterable[str]) -> None:
        """Check names that a user gave.

        Raises:
            UserError: the plan has no run task of such a name.
        """
        known = [one.name for one in self.resolved.run_tasks]
        for name in names:
            if name not in known:
                raise UserError(Problem(unknown("run task", name, known)))

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest, as submit wrote it.

        Raises:
            DamagedFile: it is damaged.
        """
        with decoding(self.manifest_file):
            return Manifest.of(read_json(self.manifest_file))

    @cached_property
    def created(self) -> datetime:
        """When it was made: by its manifest, else by its id, else its folder's time."""
        with contextlib.suppress(OSError, ValueError):
            if moment := self.manifest.moment:
                return moment
        with contextlib.suppress(ValueError, OverflowError):
            return datetime.strptime(self.id[:13], "%Y%m%d-%H%M").astimezone()
        try:
            written = self.path.stat().st_mtime
        except OSError:
            written = 0.0
        return datetime.fromtimestamp(written).astimezone()

    def environment_of(self, run_task: ResolvedRunTask) -> Mapping[str, Any]:
        """The image or Python environment that submit prepared for a run task; empty: none is recorded."""
        return self.manifest.environments.get(run_task.environment, {})

    def answer_basis(self, run_task: str) -> str:
        """Key of a run task's model, engine and image, see `planning.answer_basis`; empty: not known."""
        return self.manifest.answer_bases.get(run_task) or ""

    def may_have_taken_over(self, run_task: str) -> bool:
        """Whether earlier experiments may have answered samples of a run task; read once."""
        return self._taken_over is None or run_task in self._taken_over

    @cached_property
    def _taken_over(self) -> frozenset[str] | None:
        """Run tasks with answers of earlier experiments; None: the record is damaged."""
        try:
            return frozenset(read_json(self.reused_file)["run_tasks"])
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @cached_property
    def work(self) -> WorkPlan:
        """Groups and shards, as submit planned them."""
        with decoding(self.manifest_file):
            return decoded(WorkPlan, self.manifest.work)

    @cached_property
    def measured(self) -> Measured:
        """Facts that only the files of data and weights show. Loading its schema takes 0.1 s."""
        from hpcbench.schema.plan import Measured

        with decoding(self.manifest_file):
            return Measured.model_validate(self.manifest.measured)


@contextlib.contextmanager
def decoding(file: Path, remedy: str = RESTORE) -> Iterator[None]:
    """Name the file that is damaged and the remedy, where its content is not of its form."""
    try:
        yield
    except DamagedFile:
        raise
    except OTHER_FORM as error:
        raise DamagedFile(file, _mistake(error), remedy) from None


def _mistake(error: Exception) -> str:
    from pydantic import ValidationError  # slow import, and few files are damaged

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else first["msg"]
    return str(error) if isinstance(error, ValueError) else "it has another form"


RESCORED = "/rescored/"
"""Text between an experiment and the name of scores that `hpcbench score --save NAME` stored."""


@dataclass(frozen=True)
class Rescored(Experiment):
    """An experiment by the scores that `hpcbench score --save NAME` stored beside its own.

    Readers of scores see these metrics, options and policies instead of the plan's, and only the run tasks
    that were scored; answers, times and everything else are the experiment's.
    """

    name: str = ""
    """The name of these scores."""

    @property
    def id(self) -> str:
        """`ID/rescored/NAME`, as commands take it."""
        return f"{self.path.name}{RESCORED}{self.name}"

    @property
    def folder(self) -> Path:
        """The folder of these scores."""
        return self.rescored_dir(self.name)

    @property
    def scores_dir(self) -> Path:
        return self.folder / "scores"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.json"

    @property
    def report_dir(self) -> Path:
        return self.folder / "report"

    @property
    def summary_file(self) -> Path:
        return self.folder / "summary.json"

    @property
    def record_file(self) -> Path:
        """How they were scored; written last, so it exists only beside whole scores."""
        return self.folder / "scored.json"

    @cached_property
    def record(self) -> Rescoring:
        """Content of `record_file`.

        Raises:
            DamagedFile: it is damaged.
        """
        from hpcbench.schema.plan import Rescoring

        remedy = f"store these scores again: `hpcbench score {self.path.name} --save {self.name}`"
        with decoding(self.record_file, remedy):
            return Rescoring.model_validate_json(self.record_file.read_text(encoding="utf-8"))

    def use_packages(self) -> None:
        """Make the plugins that scored it importable in this process; those of the plan come after them."""
        from hpcbench import plugins

        for folder in self.record.packages:
            plugins.add_folder(Path(folder))
        super().use_packages()

    @cached_property
    def resolved(self) -> ResolvedPlan:
        """The resolved plan with the run tasks that were scored, and the metrics that scored them."""
        plan = super().resolved
        run_tasks = [
            one.model_copy(
                update={
                    "metrics": how.metrics,
                    "metric_facts": how.facts,
                    "task": one.task.model_copy(update={"on_invalid": how.on_invalid}),
                }
            )
            for one in plan.run_tasks
            if (how := self.record.run_tasks.get(one.name)) is not None
        ]
        return plan.model_copy(update={"run_tasks": tuple(run_tasks)})


def events_name(index: int, attempt: int) -> str:
    """Name of the events of an attempt at a shard."""
    return f"{index:05d}.{attempt}.events.jsonl"


def responses_name(index: int, attempt: int) -> str:
    """Name of the answers of an attempt at a shard."""
    return f"{index:05d}.{attempt}.responses.jsonl"


def turns_name(index: int, attempt: int) -> str:
    """Name of the turns of an attempt at a shard, where its answers come from agents."""
    return f"{index:05d}.{attempt}.turns.jsonl"


def _of_rank(rank: int) -> str:
    return f".rank{rank}" if rank else ""


def monitors_of(run: str, names: Iterable[str]) -> list[str]:
    """The files among these with readings of all ranks of a worker's run, `GROUP.OWNER`."""
    pattern = re.compile(rf"{re.escape(run)}(\.rank\d+)?\.monitor\.jsonl")
    return sorted(filter(pattern.fullmatch, names))


def attempts_in(names: Iterable[str]) -> dict[int, list[int]]:
    """Attempts of each shard with at least one, in order, from names of files."""
    found: dict[int, list[int]] = {}
    for name in names:
        if name.endswith(".events.jsonl") and (match := _CLAIM.fullmatch(name)):
            found.setdefault(int(match[1]), []).append(int(match[2]))
    for attempts in found.values():
        attempts.sort()
    return found


def experiments_dir(root: Path) -> Path:
    """Folder of the experiments of a home."""
    return root / "experiments"


def all_experiments(root: Path) -> Iterator[Experiment]:
    """Experiments of a home that this user may read, oldest first."""
    folder = experiments_dir(root)
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.name[0] != "." and os.access(path / "manifest.json", os.R_OK):
                yield Experiment(path)


def private_experiments(root: Path) -> list[Path]:
    """Folders that may be experiments of other users, unreadable for this user."""
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
    """The experiment of an id, a unique prefix of an id, a baseline's name, a path, or `@last`.

    Raises:
        UserError: no experiment fits, or more than one.
    """
    if not wanted.strip():  # an unset shell variable; the empty text is a prefix of every id
        raise UserError("the name of an experiment is empty", remedy="give an id, a path or @last")
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
        close = nearest(wanted, ["@last", *there] if known else there)
        meant = f"did you mean '{close}'? " if close else ""
        if not known:
            remedy = "it has none yet: `hpcbench submit PLAN` makes one"
        raise UserError(Problem(f"no experiment '{wanted}' in {root}", remedy=meant + remedy))
    names = few([experiment.id for experiment in matches], 5)
    raise UserError(Problem(f"'{wanted}' matches several experiments: {names}", remedy=remedy))


def find_scored(root: Path, wanted: str) -> Experiment:
    """As `find`; `EXPERIMENT/rescored/NAME` is that experiment by other scores, see `Rescored`.

    Raises:
        UserError: as `find`; or the experiment has no such scores.
    """
    named, mark, name = wanted.rstrip("/").rpartition(RESCORED)
    if not mark:
        return find(root, wanted)
    experiment = find(root, named)
    found = Rescored(experiment.path, name)
    if found.record_file.is_file():
        return found
    remedy = f"`hpcbench score {experiment.id} --save {name}`, with --metrics, stores such scores"
    if found.metrics_file.is_file():
        what = f"{found.id} does not say how it was scored: an earlier version of hpcbench wrote it"
        raise UserError(Problem(what, remedy=f"store it again: {remedy}"))
    top = experiment.rescored_dir(name).parent
    known = sorted(path.name for path in top.iterdir()) if top.is_dir() else []
    what = unknown("stored scores", name, known, of=experiment.id)
    raise UserError(Problem(what, remedy=remedy))


def _at_path(path: Path) -> Experiment:
    if (path / "manifest.json").is_file():
        return Experiment(path.resolve())
    remedy = "`hpcbench list` shows experiments"
    named, mark, _ = str(path).rpartition(RESCORED)
    if mark:
        what = f"{path} are scores stored beside an experiment: this verb takes the experiment"
        raise UserError(what, remedy=f"give {named}; compare, gate and report take stored scores")
    if not path.exists():
        raise UserError(Problem("no such folder", str(path), remedy=remedy))
    what = "not the folder of an experiment: it has no manifest.json"
    raise UserError(Problem(what, str(path), remedy=remedy))


def named_by(root: Path, baseline: Baseline) -> Experiment:
    """The experiment of a baseline.

    Raises:
        UserError: the experiment is gone.
    """
    meant = str(baseline.experiment)
    experiment = Experiment(Path(meant) if "/" in meant else experiments_dir(root) / meant)
    if not experiment.manifest_file.is_file():
        remedy = f"`hpcbench baseline set EXPERIMENT --name {baseline.name}` chooses another one"
        raise UserError(
            Problem(
                f"baseline '{baseline.name}' names {meant}, which no longer exists", remedy=remedy
            )
        )
    return experiment
