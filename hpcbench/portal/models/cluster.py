"""The cluster as Slurm sees it."""

from __future__ import annotations

from collections.abc import Mapping

from hpcbench.portal.models.base import Model


class ClusterJob(Model):
    """One of the user's jobs, or an array of them."""

    id: str
    """Job id; of waiting array tasks that of the array."""
    name: str
    """Its name."""
    partition: str
    """Where."""
    state: str
    """Slurm's word."""
    tasks: int = 1
    """Array tasks it stands for."""
    gpus: int = 0
    """GPUs it holds or wants, each task."""
    gpu_type: str = ""
    """Their type."""
    node: str = ""
    """Where it runs."""
    restarts: int = 0
    """How often it was requeued."""
    why: str = ""
    """Why it waits, in plain words."""
    submitted: float | None = None
    """When."""
    started: float | None = None
    """When it started, or is expected to."""
    ends: float | None = None
    """When its time is up."""
    experiment: str | None = None
    """The experiment it works for."""


class Partition(Model):
    """A queue."""

    name: str
    """Its name."""
    up: bool
    """Whether jobs start there."""
    default: bool = False
    """Whether jobs go there unasked."""
    nodes: int
    """Nodes."""
    idle: int
    """Nodes without a job."""
    time_limit: str
    """Longest job."""
    gpus: Mapping[str, int]
    """Type of GPU → how many there are."""
    free_gpus: Mapping[str, int] | None = None
    """Type of GPU → how many are free on nodes that are up; None: Slurm does not say."""
    down_gpus: Mapping[str, int] | None = None
    """Type of GPU → how many are on nodes that are down or drained; None: Slurm does not say."""


class NodeCell(Model):
    """A node in the grid."""

    name: str
    """Its name."""
    partition: str
    """Its first partition."""
    state: str
    """Slurm's word."""
    gpus: int = 0
    """GPUs."""
    gpus_used: int = 0
    """GPUs that jobs hold."""
    cpus: int = 0
    """CPUs."""
    cpus_used: int = 0
    """CPUs that jobs hold."""
    mine: int = 0
    """Jobs of the user on it."""
    gpu_type: str = ""
    """Type of its GPUs, where Slurm names one."""
    up: bool = True
    """Whether jobs may start on it."""
    why: str = ""
    """Why not, as its administrators say."""


class Room(Model):
    """How full a file system or quota is."""

    name: str
    """home, cache, scratch."""
    path: str
    """Which folder."""
    used: int
    """Bytes."""
    size: int
    """Bytes."""
    files_used: int | None = None
    """Files, where the file system says."""
    files: int | None = None
    """Files there may be."""
    quota: bool = False
    """Whether it is the user's quota; else of the whole file system."""


class LocalWork(Model):
    """An experiment that runs as processes of this machine, without Slurm."""

    experiment: str
    """The experiment."""
    plan: str
    """Name of its plan."""
    answered: int
    """Samples with an answer."""
    samples: int
    """Samples to ask about."""
    processes: int
    """Processes of it that live here."""
    started: float
    """When it was submitted."""


class Cluster(Model):
    """The cluster as Slurm sees it, asked at most every 30 s for all readers."""

    available: bool
    """Whether there is a Slurm here."""
    asked: float | None
    """When it was asked."""
    fault: str | None = None
    """Why it did not answer; what is shown is then older."""
    asking: bool = False
    """Whether it is being asked right now: `ClusterNews` tells when it has answered."""
    jobs: tuple[ClusterJob, ...] = ()
    """The user's own."""
    partitions: tuple[Partition, ...] = ()
    """Queues."""
    nodes: tuple[NodeCell, ...] = ()
    """Nodes, at most 2,000."""
    nodes_total: int = 0
    """Nodes there are."""
    room: tuple[Room, ...] = ()
    """File systems."""
    local: tuple[LocalWork, ...] = ()
    """Experiments that run here without Slurm."""
