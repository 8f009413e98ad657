"""The cluster as Slurm sees it: one query for all readers, at most every 30 s, in a thread of its own.

Readers get the last answer at once, with its age. A reader of an old answer starts a new query in the
background; `ClusterNews` announces the new answer to all readers. If Slurm does not answer, the old answer
stays, with the reason.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpcbench import slurm
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import experiments_dir
from hpcbench.portal.context import Portal
from hpcbench.portal.index import ExperimentQuery
from hpcbench.portal.models.cluster import Cluster, ClusterJob, LocalWork, NodeCell, Partition
from hpcbench.portal.models.live import ClusterNews
from hpcbench.portal.quotas import disk_usages
from hpcbench.process_table import command, own_pids
from hpcbench.registry.catalog import user_site
from hpcbench.schema.site import Site
from hpcbench.slurm.nodes import Node, expand_nodes, nodes_answer, parse_nodes, partitions_answer
from hpcbench.slurm.shared_answer import SharedAnswer

MAX_AGE = 30.0
"""Shortest time between two queries, seconds."""

FIRST_WAIT = 2.0
"""Time that the very first reader waits for an answer, seconds."""

MOST_NODES = 2_000
"""Most nodes that the portal shows."""

MOST_JOBS = 2_000
"""Most jobs that the portal shows; running jobs come first."""

_ORDER = {"RUNNING": 0, "COMPLETING": 1, "CONFIGURING": 2, "PENDING": 3}


class Watch:
    """Keeps the last state of the cluster.

    Args:
        portal: the portal; its home, index and live messages are used.
        folder: folder of Slurm's answers for all readers on this machine; None: the user's private folder.
    """

    def __init__(self, portal: Portal, folder: Path | None = None) -> None:
        self._portal, self._folder = portal, folder
        self._lock = threading.Lock()
        self._word: Cluster | None = None
        self._tried = -1e9
        self._asking: threading.Event | None = None

    def word(self) -> Cluster:
        """The last state; an old state starts a new query in the background."""
        with self._lock:
            if self._asking is None and time.monotonic() - self._tried >= MAX_AGE:
                self._asking = threading.Event()
                threading.Thread(target=self._ask, args=(self._asking,), daemon=True).start()
            word, asking = self._word, self._asking
        if word is None and asking is not None:
            asking.wait(FIRST_WAIT)
            word = self._word
        if word is None:
            word = Cluster(available=slurm.available(), asked=None)
        return word.model_copy(update={"asking": self._asking is not None})

    def _ask(self, done: threading.Event) -> None:
        try:
            word = self._asked()
        except Exception as error:  # noqa: BLE001 - after any error the old state stays, with the fault
            old = self._word or Cluster(available=True, asked=None)
            word = old.model_copy(update={"fault": f"{type(error).__name__}: {error}"[:300]})
        with self._lock:
            self._word, self._tried, self._asking = word, time.monotonic(), None
        done.set()
        self._portal.hub.publish(lambda seq, now: ClusterNews(seq=seq, time=now))

    def _asked(self) -> Cluster:
        try:
            site = user_site()
        except HpcbenchError:
            site = None
        room = disk_usages(_places(self._portal, site))
        if not slurm.available():
            work = tuple(_local(self._portal))
            return Cluster(available=False, asked=time.time(), room=room, local=work)
        found = slurm.snapshot(MAX_AGE, folder=self._folder)
        nodes = nodes_answer(MAX_AGE, folder=self._folder)
        partitions = partitions_answer(folder=self._folder)
        known = list(parse_nodes(nodes.text))
        return Cluster(
            available=True,
            asked=_oldest(found.time, nodes),
            fault=found.fault or nodes.fault or partitions.fault,
            jobs=tuple(_jobs(self._portal.home, found, site, self._folder)),
            partitions=tuple(_partitions(slurm.parse_key_values(partitions.text), known)),
            nodes=tuple(_cells(known[:MOST_NODES], found.jobs)),
            nodes_total=len(known),
            room=room,
            local=tuple(_local(self._portal)),
        )


def _oldest(jobs: float, nodes: SharedAnswer) -> float | None:
    """Query time of the oldest part of the state; None: a part was never answered."""
    return min(jobs, nodes.time) or None


def _places(portal: Portal, site: Site | None) -> dict[str, Path]:
    """Name of a folder for users → the folder."""
    found = {"experiments": portal.home, "home": Path.home(), "plans": portal.options.plans}
    for number, cache in enumerate(site.caches if site else ()):
        found[f"cache {number + 1}" if number else "cache"] = Path(
            os.path.expandvars(cache)
        ).expanduser()
    scratch = os.environ.get("SCRATCH")
    return found | ({"scratch": Path(scratch)} if scratch else {})


def _jobs(
    home: Path, found: slurm.Snapshot, site: Site | None, folder: Path | None
) -> Iterator[ClusterJob]:
    """The user's jobs that have not ended; running jobs come first."""
    live = [job for job in found.jobs if job.alive]
    live.sort(key=lambda job: (_ORDER.get(job.state, 9), -(job.submitted or 0)))
    whys: dict[tuple[object, ...], str] = {}
    for job in live[:MOST_JOBS]:
        why = ""
        if job.state == "PENDING":
            # One explanation serves hundreds of tasks with the same reason.
            key = (job.array_job, job.reason, job.partition, job.start, job.gpus, job.tres)
            if key not in whys:
                whys[key] = slurm.why_pending(job, found, site, folder=folder)
            why = whys[key]
        yield ClusterJob(
            id=job.id,
            name=job.name,
            partition=job.partition,
            state=job.state,
            tasks=job.tasks,
            gpus=job.gpus,
            gpu_type=job.gpu_type,
            node=job.node,
            restarts=job.restarts,
            why=why,
            submitted=job.submitted,
            started=job.start,
            ends=job.end,
            experiment=_experiment(home, job.comment or job.name),
        )


def _experiment(home: Path, comment: str) -> str | None:
    """The experiment of a job, from `hpcbench:ID:STEP`; None: no experiment of this home."""
    words = comment.split(":")
    if len(words) < 3 or words[0] != "hpcbench" or "/" in words[1] or words[1] in ("", ".", ".."):
        return None
    return words[1] if (experiments_dir(home) / words[1]).is_dir() else None


def _partitions(rows: Sequence[Mapping[str, str]], nodes: Sequence[Node]) -> Iterator[Partition]:
    members: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.partitions:
            members.setdefault(name, []).append(node)
    for row in rows:
        name = row.get("PartitionName", "")
        if not name:
            continue
        own = members.get(name, [])
        total, free, down = Counter[str](), Counter[str](), Counter[str]()
        for node in own:
            total.update(node.gpus)
            if node.up:
                free.update(_free(node))
            else:
                down.update(_free(node))
        declared = row.get("TotalNodes", "")
        yield Partition(
            name=name,
            up=row.get("State", "UP") == "UP",
            default=row.get("Default") == "YES",
            nodes=len(own) or (int(declared) if declared.isdigit() else 0),
            idle=sum(node.idle for node in own),
            time_limit=row.get("MaxTime", ""),
            gpus=dict(total),
            free_gpus={kind: free[kind] for kind in total} if own else None,
            down_gpus={kind: down[kind] for kind in total} if own else None,
        )


def _free(node: Node) -> dict[str, int]:
    """Type → GPUs that no job holds; GPUs held without a type are subtracted from any type."""
    left = {kind: count - node.gpus_used.get(kind, 0) for kind, count in node.gpus.items()}
    untyped = node.gpus_used.get("", 0) if "" not in node.gpus else 0
    for kind in left:
        taken = min(max(left[kind], 0), untyped)
        left[kind], untyped = max(left[kind] - taken, 0), untyped - taken
    return left


def _cells(nodes: Sequence[Node], jobs: Sequence[slurm.Job]) -> Iterator[NodeCell]:
    mine = Counter(
        name
        for job in jobs
        if job.node and job.state in ("RUNNING", "COMPLETING")
        for name in expand_nodes(job.node)
    )
    for node in nodes:
        yield NodeCell(
            name=node.name,
            partition=node.partitions[0] if node.partitions else "",
            state=node.state,
            gpus=sum(node.gpus.values()),
            gpus_used=sum(node.gpus_used.values()),
            gpu_type=", ".join(kind for kind in node.gpus if kind),
            cpus=node.cpus,
            cpus_used=node.cpus_used,
            mine=mine[node.name],
            up=node.up,
            why=node.why,
        )


def _local(portal: Portal) -> Iterator[LocalWork]:
    """Experiments with processes on this machine: under `executor: local` Slurm does not know them."""
    page = portal.index.experiments(
        ExperimentQuery(states=("running", "pending", "evaluating", "stalled"), limit=200)
    )
    if not page.items:
        return
    alive = _processes({row.id: str(experiments_dir(portal.home) / row.id) for row in page.items})
    for row in page.items:
        if alive[row.id]:
            yield LocalWork(
                experiment=row.id,
                plan=row.plan,
                answered=row.answered,
                samples=row.samples,
                processes=alive[row.id],
                started=row.created,
            )


def _processes(folders: Mapping[str, str]) -> Counter[str]:
    """Experiment → the user's processes on this machine whose command names the experiment's folder."""
    found: Counter[str] = Counter()
    wanted = {os.fsencode(folder): identity for identity, folder in folders.items()}
    for pid in own_pids():
        named = next((wanted[word] for word in command(pid) if word in wanted), None)
        if named is not None:
            found[named] += 1
    return found
