"""The cluster as Slurm sees it."""

from __future__ import annotations

from collections.abc import Mapping

from hpcbench.portal.models.base import Model


class ClusterJob(Model):
    """One of the user's jobs, or an array of them."""

    id: str
    """Job id; for waiting array tasks, the id of the array."""
    name: str
    """Name of the job."""
    partition: str
    """Its partition."""
    state: str
    """Slurm's state."""
    tasks: int = 1
    """Number of array tasks in this row."""
    gpus: int = 0
    """GPUs of each task, allocated or requested."""
    gpu_type: str = ""
    """Type of the GPUs."""
    node: str = ""
    """Its node, once it runs."""
    restarts: int = 0
    """Number of requeues."""
    why: str = ""
    """Reason why it waits, in plain words."""
    submitted: float | None = None
    """Time of submission, seconds since the epoch."""
    started: float | None = None
    """Start time, or the expected one, seconds since the epoch."""
    ends: float | None = None
    """Time at which its time limit ends, seconds since the epoch."""
    experiment: str | None = None
    """Id of its experiment."""


class Partition(Model):
    """A partition."""

    name: str
    """Name of the partition."""
    up: bool
    """Whether Slurm starts jobs in it."""
    default: bool = False
    """Whether Slurm uses it for jobs that name no partition."""
    nodes: int
    """Number of nodes."""
    idle: int
    """Number of nodes without a job."""
    time_limit: str
    """Longest time limit of a job."""
    gpus: Mapping[str, int]
    """Type of GPU → number of GPUs."""
    free_gpus: Mapping[str, int] | None = None
    """Type of GPU → number of free GPUs on nodes that are up; None: Slurm does not report it."""
    down_gpus: Mapping[str, int] | None = None
    """Type of GPU → number of GPUs on nodes that are down or drained; None: Slurm does not report it."""


class NodeCell(Model):
    """A node in the grid."""

    name: str
    """Name of the node."""
    partition: str
    """Its first partition."""
    state: str
    """Slurm's state."""
    gpus: int = 0
    """Number of GPUs."""
    gpus_used: int = 0
    """Number of allocated GPUs."""
    cpus: int = 0
    """Number of CPUs."""
    cpus_used: int = 0
    """Number of allocated CPUs."""
    mine: int = 0
    """Number of the user's jobs on it."""
    gpu_type: str = ""
    """Type of its GPUs, where Slurm names one."""
    up: bool = True
    """Whether Slurm may start jobs on it."""
    why: str = ""
    """The administrators' reason why Slurm starts no jobs on it."""


class DiskUsage(Model):
    """Usage of a file system or quota."""

    name: str
    """home, cache, scratch."""
    path: str
    """Its folder."""
    used: int
    """Bytes in use."""
    size: int
    """Size or limit, bytes."""
    files_used: int | None = None
    """Number of files; None: the file system does not report it."""
    files: int | None = None
    """Largest number of files."""
    quota: bool = False
    """Whether these are the figures of the user's quota; else of the whole file system."""


class LocalWork(Model):
    """An experiment that runs as processes of this machine, without Slurm."""

    experiment: str
    """Id of the experiment."""
    plan: str
    """Name of its plan."""
    answered: int
    """Number of samples with an answer."""
    samples: int
    """Number of samples to send to the models."""
    processes: int
    """Number of its processes that run on this machine."""
    started: float
    """Time of submission, seconds since the epoch."""


class Cluster(Model):
    """The cluster's state from Slurm, queried at most every 30 s for all readers."""

    available: bool
    """Whether this machine has Slurm."""
    asked: float | None
    """Time of the last query, seconds since the epoch."""
    fault: str | None = None
    """Error of the last query; the other fields are then older."""
    asking: bool = False
    """Whether a query runs; `ClusterNews` reports its end."""
    jobs: tuple[ClusterJob, ...] = ()
    """The user's jobs."""
    partitions: tuple[Partition, ...] = ()
    """Partitions."""
    nodes: tuple[NodeCell, ...] = ()
    """Nodes, at most 2,000."""
    nodes_total: int = 0
    """Number of all nodes."""
    room: tuple[DiskUsage, ...] = ()
    """File systems."""
    local: tuple[LocalWork, ...] = ()
    """Experiments that run on this machine without Slurm."""
