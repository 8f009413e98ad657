"""An experiment in the middle of its life, set on stage: shards, workers, jobs, clocks as tests want them.

Slurm is played by `Scene.slurm`, a snapshot made by hand; nothing is asked of a real one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcbench import slurm
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender, write_atomic, write_json
from hpcbench.planning import plan_work
from hpcbench.status import ExperimentStatus, Observer
from tests.unit.small import measured, resolved, run_task

HOUR = 3600.0


class Scene:
    """An experiment of run tasks `a`, `b`, … with shards of ten samples.

    Args:
        root: an empty folder.
        samples: run task → samples.
        executor: slurm or local.
        site: more of the site's Slurm.
        model: more of each model.
        plan: more of the plan.
    """

    def __init__(
        self,
        root: Path,
        samples: Mapping[str, int] | None = None,
        executor: str = "slurm",
        site: Mapping[str, Any] | None = None,
        model: Mapping[str, Any] | None = None,
        **plan: Any,
    ) -> None:
        sizes = dict(samples or {"a": 40})
        more = dict(model or {})
        tasks = [run_task(name, model={"name": f"model-{name}", **more}) for name in sizes]
        whole = resolved(*tasks, shard_size=10, executor=executor, **plan)
        if site:
            whole = whole.model_copy(
                update={
                    "site": whole.site.model_copy(
                        update={"slurm": whole.site.slurm.model_copy(update=site)}
                    )
                }
            )
        self.experiment = Experiment(root / "experiments" / "20261120-1432-demo-aaaa")
        work = plan_work(whole, measured(whole, sizes))
        write_atomic(self.experiment.resolved_file, whole.model_dump_json())
        write_json(self.experiment.manifest_file, {"work": asdict(work), "measured": {}})
        self.now = time.time()
        self.jobs: list[slurm.Job] = []
        self.fault: str | None = None

    def submitted(
        self, job: str = "4711", *, finalise: str | None = "4712", ago: float = HOUR
    ) -> None:
        """A round of one array a group, and the job that finalises."""
        groups = self.experiment.work.groups
        steps = [(group.id, group.id, str(int(job) + 100 * n)) for n, group in enumerate(groups)]
        steps += [("finalise", "", finalise)] if finalise else []
        at = self.now - ago
        with Appender(self.experiment.submission_file) as log:
            listed = [asdict(group) for group in groups]
            log.write({"event": "round", "round": 0, "groups": listed, "time": at})
            for name, group, number in steps:
                log.write(
                    {"event": "intent", "step": name, "group": group, "time": at, "workers": 4}
                )
                log.write({"event": "submitted", "step": name, "job": number, "time": at})
            log.write({"event": "handed", "time": at})
        os.utime(self.experiment.submission_file, (at, at))

    def job(self, job_id: str, state: str = "RUNNING", **more: Any) -> None:
        """A job in Slurm's queue, of this experiment unless it has another name."""
        step = "finalise" if job_id == "4712" else "g0"
        name = more.pop("name", f"hpcbench:{self.experiment.id}:{step}.0")
        self.jobs.append(slurm.Job(job_id, name, state, **more))

    def claimed(
        self,
        task: str = "a",
        index: int = 0,
        job: str = "4711_0",
        *,
        attempt: int = 1,
        answered: int = 0,
        ago: float = 600.0,
        end: str | None = None,
        took: float = 100.0,
        restart: int = 0,
        host: str = "h",
        pid: int = 2**22 + 1,
        **details: Any,
    ) -> None:
        """An attempt at a shard: with answers, and how it ended if it did."""
        owner = {"job": job, "restart": restart, "host": host, "pid": pid, "node": "n1"}
        at = self.now - ago
        path = self.experiment.shard_events(task, index, attempt)
        with Appender(path) as log:
            if end == "released":
                log.write({"event": end, "seq": 1, "time": at, **details})
            else:
                log.write({"event": "claimed", "seq": 1, "time": at, "owner": owner})
                if end is not None:
                    reported = {"answered": answered, "time": at + took, **details}
                    log.write({"event": end, "seq": 2, **reported})
        if answered:
            with Appender(self.experiment.shard_responses(task, index, attempt)) as file:
                for number in range(answered):
                    file.write({"sample_id": str(number)})

    def worker(
        self,
        job: str = "4711_0",
        *events: tuple[str, Mapping[str, Any]],
        ago: float = 600.0,
        heard: float = 2.0,
        restart: int = 0,
        node: str = "n1",
        group: str = "g0",
    ) -> None:
        """A worker's own events; `heard` seconds ago it wrote the last one."""
        path = self.experiment.worker_events(group, f"{job}-{restart}")
        owner = {"job": job, "restart": restart, "host": "h", "pid": 2**22 + 1, "node": node}
        with Appender(path) as log:
            log.write({"event": "started", "seq": 1, "time": self.now - ago, "owner": owner})
            for number, (kind, details) in enumerate(events):
                reported = {"time": self.now - heard, **details}
                log.write({"event": kind, "seq": number + 2, **reported})
        moment = self.now - heard
        os.utime(path, (moment, moment))

    def monitor(self, job: str = "4711_0", *, heard: float = 2.0, gpus: Any = None) -> None:
        """The last line of a worker's monitor."""
        path = self.experiment.worker_monitor("g0", f"{job}-0")
        with Appender(path) as log:
            log.write({"time": self.now - heard, "at": 1.0, "phase": "a", "gpus": gpus})
        os.utime(path, (self.now - heard, self.now - heard))

    @property
    def slurm(self) -> slurm.Snapshot:
        """Current answer of Slurm."""
        return slurm.Snapshot(tuple(self.jobs), self.now - 5.0, self.fault)

    def look(self) -> ExperimentStatus:
        """The status, with the Slurm of this scene."""
        return Observer(self.experiment).look(self.slurm)
