"""Site profiles: the settings of one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, JsonValue

from hpcbench.schema.definition import Definition
from hpcbench.schema.outputs import Database
from hpcbench.schema.shared_types import LastJob, Part, Resources, TimeLimit
from hpcbench.schema.work import JobResources


class Partition(Part):
    """The limits of a partition, as far as they are known; `hpcbench init` asks Slurm for them."""

    time_limit: TimeLimit | None = None
    """Maximum time limit."""
    nodes: int | None = Field(default=None, gt=0)
    """Number of its nodes."""
    cpus: int | None = Field(default=None, gt=0)
    """CPUs of its largest node."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Memory of its largest node, GiB."""
    gpus: Mapping[str, int] | None = None
    """Type of GPU → maximum number of them on one node; empty: the partition has no GPU."""
    gpu_memory_gb: Mapping[str, float] = Field(default_factory=dict)
    """Type of GPU (`gpu` for those without a type) → memory of one GPU, GiB; Slurm does not report it."""
    whole_nodes: bool = False
    """Whether a job always gets whole nodes: then it runs as many engines of a model as a node has room for,
    unless the model says `replicas_per_node`."""

    def most_gpus(self, kind: str | None) -> int | None:
        """GPUs of this type, or of any, on the node that has most; None: not known, or no such type."""
        if not self.gpus:
            return None
        return self.gpus.get(kind) if kind else max(self.gpus.values())


class SshSite(Part):
    """How to reach this cluster from another machine; keys come from the agent or ~/.ssh."""

    host: str
    """Login node: a host of ~/.ssh/config, or a host name."""
    user: str | None = None
    """User name on the cluster. Without it: that of ~/.ssh/config, else the local one."""
    port: int | None = Field(default=None, gt=0, lt=65536)
    """Port. Without it: that of ~/.ssh/config, else 22."""
    jump: str | None = None
    """Jump host, `[USER@]HOST[:PORT]`. Without it: the ProxyJump of ~/.ssh/config."""
    identity: str | None = None
    """File with the private key. Without it: the agent's keys and ssh's default files."""
    known_hosts: str | None = None
    """File of host keys in addition to ~/.ssh/known_hosts; hpcbench refuses a host that is in neither."""
    hpcbench: str = "hpcbench"
    """The hpcbench command on the cluster: a path, unless a login shell has it on PATH."""


class SlurmSite(Part):
    """Settings for sbatch on this cluster."""

    partition: str | None = None
    """Default partition of workers."""
    cpu_partition: str | None = None
    """Partition of the last job, which evaluates and reports, and of entries in Slurm's crontab. Without it:
    the workers' partition; if they have GPUs, the last worker does that work and holds its GPU meanwhile."""
    account: str | None = None
    """Account to charge."""
    qos: str | None = None
    """Quality of service (QOS) of the jobs."""
    reservation: str | None = None
    """Reservation to run jobs in."""
    constraint: str | None = None
    """Features that nodes must have, in sbatch's syntax."""
    gpu_gres: str = "gpu"
    """GRES name of GPUs: `gpu`, or with a type, `gpu:a100`."""
    interface: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.:-]{1,64}$")
    """Network interface, e.g. `ib0`, over which the nodes of one engine talk. Without it: the one that the
    node's name leads to."""
    gpu_option: Literal["gres", "gpus", "gpus-per-node"] = "gres"
    """sbatch's option for GPUs: `--gres=gpu:a100:2`, `--gpus=a100:2` or `--gpus-per-node=a100:2`."""
    template: str | None = None
    """Jinja2 template of shell lines at the start of every job, after `setup`: a file, or a name in
    `slurm_templates/`; it can use `site`, `group` and `plan`."""
    submit_from_jobs: bool = True
    """Whether compute nodes may call sbatch, scontrol and scancel. If not, the next `status`, `watch` or cron
    call on the login node submits the jobs that are due."""
    drain_seconds: int = Field(default=90, ge=10, le=3600)
    """How long before its time limit a worker starts to drain, seconds: it sends no new request and waits for
    those in flight."""
    options: Mapping[str, bool | int | str] = Field(default_factory=dict)
    """Further sbatch options, long names without dashes; `true` for an option without a value."""
    last_job: LastJob = Field(default_factory=LastJob)
    """Resources of the job that evaluates and reports."""
    max_array_size: int | None = Field(default=None, gt=0)
    """Slurm's MaxArraySize."""
    partitions: Mapping[str, Partition] = Field(default_factory=dict)
    """Limits of the partitions, for cross-checks; hpcbench does not check a partition that is missing
    here."""

    def gpu_type(self, need: Resources | JobResources) -> str | None:
        """Type of GPU that a job requests; None: any."""
        return need.gpu_type or self.gpu_gres.partition(":")[2] or None

    def partition_of(self, need: Resources | JobResources | None = None) -> Partition | None:
        """Limits of a job's partition; None: they are not known.

        Args:
            need: what the job requests; None: a job without requests of its own.
        """
        return self.partition_called((need and need.partition) or self.partition)

    def partition_called(self, name: str | None) -> Partition | None:
        """Limits of the partition of that name; None: they are not known."""
        return self.partitions.get(name or "")


class ContainerSite(Part):
    """How to build and start images on this cluster."""

    manager: str = "apptainer"
    """Container manager: `apptainer`, `docker`, `runpod`, `skypilot` or another plugin."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of a manager other than Apptainer. Write secrets as references."""
    program: str = "apptainer"
    """`apptainer` or `singularity`, a name on PATH or a path."""
    binds: tuple[str, ...] = ()
    """Folders to bind into every container, `SRC[:DST[:ro]]`."""
    insecure_registries: tuple[str, ...] = ()
    """`HOST:PORT` of registries without TLS."""
    network: Literal["host", "none"] = "host"
    """`host`: engines use the node's network. `none`: engines have no network, where Apptainer is allowed to
    cut it off."""
    gpu_maker: Literal["nvidia", "amd"] = "nvidia"
    """Vendor of the nodes' GPUs."""
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    """Newest CUDA version that the driver of the nodes supports, as `nvidia-smi` shows it there."""
    driver: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$")
    """Version of that driver, for people; hpcbench compares only `cuda`."""
    build_with: tuple[str, ...] = ()
    """Command prefix for building an image, where a login node is not for heavy work: `[srun,
    --partition=cpu, --cpus-per-task=8, --mem=16G]`."""
    build_tmp: str | None = None
    """Folder in which a build unpacks images; `$TMPDIR` is that of the machine that builds."""
    build_args: Mapping[str, str] = Field(default_factory=dict)
    """Values for the ARGs of recipes, e.g. a mirror of the base image."""
    build_env: Mapping[str, str] = Field(default_factory=dict)
    """Environment variables for the commands of recipes, e.g. PIP_INDEX_URL of a mirror; they are not stored
    in the image."""
    build_binds: tuple[str, ...] = ()
    """Folders that the commands of recipes can access, `SRC:DST[:ro]`; DST must exist in the base image."""
    signed: bool = False
    """Whether `.sif` and `oras://` images must have a signature by a key in the user's keyring."""
    squash_packages: bool = False
    """Whether to pack the packages that are mounted beside an image into one file, instead of thousands of
    files."""


class Site(Definition):
    """A site profile: the settings of one cluster; `hpcbench init` writes it."""

    executor: Literal["slurm", "local"] = "local"
    """Where jobs run if the plan does not say it. If the profile does not say it either, `submit` refuses on
    a machine that submits to a Slurm cluster."""
    home: str | None = None
    """Folder of experiments and caches, on the shared file system."""
    scratch: str | None = None
    """Node-local folder for sockets and temporary files; hpcbench expands variables such as `$TMPDIR`."""
    slurm: SlurmSite = Field(default_factory=SlurmSite)
    """Settings for sbatch."""
    container: ContainerSite = Field(default_factory=ContainerSite)
    """Settings for containers."""
    setup: tuple[str, ...] = ()
    """Shell lines at the start of every job."""
    modules: tuple[str, ...] = ()
    """Environment modules that every job loads."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Environment variables of every job, e.g. https_proxy. Write secrets as references."""
    group: str | None = None
    """Unix group of the experiments' files. Without it: the user's group."""
    umask: str | None = Field(default=None, pattern=r"^0?[0-7]{3}$")
    """umask of submit and of every job, octal. Without it: unchanged."""
    ssh: SshSite | None = None
    """How `hpcbench --site NAME` reaches this cluster from another machine. Without it: the profile describes
    the local cluster."""
    models: tuple[str, ...] = ()
    """Folders with models as `ORGANISATION/NAME`; hpcbench looks for `hf://` models in them first."""
    storage: Mapping[str, Mapping[str, JsonValue]] = Field(default_factory=dict)
    """Scheme → options of its storage, e.g. the endpoint of the local S3 server. Write secrets as
    references."""
    caches: tuple[str, ...] = ()
    """Caches of other users, `HOME/cache`, which hpcbench only reads: it uses their files in place."""
    cache_gb: float | None = Field(default=None, gt=0)
    """Maximum size of the cache of datasets, and of the cache of models, GiB each; the entry with the oldest
    use is deleted first."""
    gpu_hour_price: float | None = Field(default=None, gt=0)
    """Price of one GPU-hour; with it, reports show the cost of 1,000 documents."""
    currency: str = ""
    """Currency of the price, as reports show it: EUR, RUB."""
    staging: str | None = None
    """Node-local folder to which a job copies its datasets and models before it starts; hpcbench expands
    variables such as `$TMPDIR`."""
    database: Database | None = None
    """Database that gets the results of all experiments of this cluster."""
