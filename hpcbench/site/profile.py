"""Detection of a site profile on this machine; it asks only for values that this machine does not show.

Questions go through an `Ask`: the command line asks on a terminal, and without one takes the default.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import home
from hpcbench.files.quotas import Quota, lustre_quotas, quotas
from hpcbench.schema.site import ContainerSite, Partition, Site, SlurmSite
from hpcbench.submit import Say
from hpcbench.subprocesses import printed

SCRATCH = ("SLURM_TMPDIR", "LOCAL_SCRATCH", "LSCRATCH", "TMPDIR")
"""Variables that name a node's own disk, if login nodes set them too."""

PERMANENT = ("WORK", "WORKDIR", "PROJECT", "PROJECTDIR", "GROUP_HOME")
"""Variables that name a user's or group's shared folder whose files are never purged."""

PURGED = ("SCRATCH", "PSCRATCH", "SCRATCHDIR", "CSCRATCH")
"""Variables that name a shared folder in which many sites delete old files."""

OFTEN_PURGED = "often purged"
"""Remark on such a folder: `_home` never proposes it by itself."""

PROXIES = ("https_proxy", "http_proxy", "no_proxy", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")

PATIENCE = 30
"""Seconds to wait for a command that may be slow or absent at a site."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One possible answer."""

    value: str
    """Value for the profile."""
    detail: str = ""
    """Reasons for or against it."""


Ask = Callable[[str, str, Sequence[Choice], str], str]
"""Path of the field, question, choices (none: any text), default → the answer; empty: no answer."""


def take_default(path: str, question: str, choices: Sequence[Choice], default: str) -> str:
    """The `Ask` without a user: it returns the default."""
    return default


def detect(ask: Ask = take_default, say: Say = lambda line: None, *, local: bool = False) -> Site:
    """A site profile from detection and answers.

    Args:
        ask: asks for values that cannot be detected.
        say: receives the findings.
        local: whether the profile is for this machine alone, without Slurm.

    Raises:
        EnvironmentFault: Slurm's commands exist, and no cluster answers them; the user can write nowhere.
    """
    container, modules = _container(say)
    scratch = next((f"${name}" for name in SCRATCH if name in os.environ), None)
    site = Site(
        name="default",
        description=f"made by `hpcbench init` on {socket.gethostname()}",
        home=_home(ask, say),
        scratch=scratch,
        container=container,
        modules=modules,
        env=_proxies(say),
    )
    if local or not slurm.available():
        say(f"executor: local ({'as requested' if local else 'no sbatch on PATH'})")
        if (nodes := gpus_here()) is None:
            return site
        say(f"GPUs: {nodes}")
        update = {"cuda": nodes.cuda, "driver": nodes.driver}
        return site.model_copy(update={"container": container.model_copy(update=update)})
    profile = _slurm_site(ask, say)
    say(f"executor: slurm ({slurm.version()})")
    kinds = [kind.lower() for one in profile.partitions.values() for kind in one.gpus or ()]
    if kinds and all(re.match(r"mi\d{2,3}", kind) for kind in kinds):
        container = container.model_copy(update={"gpu_maker": "amd"})
    return site.model_copy(update={"executor": "slurm", "slurm": profile, "container": container})


# --- Slurm ------------------------------------------------------------------------------------------


def _slurm_site(ask: Ask, say: Say) -> SlurmSite:
    described = _described()
    default = next((one["PartitionName"] for one in described if one.get("Default") == "YES"), "")
    known = _partitions(described, say)
    account = _account(ask, say)
    usable = [
        one["PartitionName"]
        for one in described
        if one.get("State", "UP") == "UP" and _admits(one, account)
    ]
    chosen = _partition(ask, say, known, usable, default)
    gpus = sorted(known[chosen].gpus or ()) if chosen else []
    gres = f"gpu:{gpus[0]}" if len(gpus) == 1 else "gpu"
    without = [name for name in usable if name != chosen and known[name].gpus == {}]
    cpu = default if default in without else next(iter(without), None)
    if not gpus:
        cpu = None
    if cpu is not None:
        say(f"partition for jobs without GPUs: {cpu}")
    largest = slurm.max_array_size()
    site = SlurmSite(
        partition=chosen or None,
        cpu_partition=cpu,
        account=account or None,
        gpu_gres=gres,
        max_array_size=largest,
        partitions=known,
    )
    return _with_gpu_option(site, say) if gpus else site


def _described() -> list[dict[str, str]]:
    """The cluster's partitions as Slurm describes them.

    Raises:
        EnvironmentFault: no cluster answers, or the cluster has no partition.
    """
    why = "the cluster has no partition"
    try:
        found = [one for one in slurm.partitions() if "PartitionName" in one]
    except EnvironmentFault as fault:
        found, why = [], fault.message
    if not found:
        raise EnvironmentFault(
            f"Slurm's commands are installed, but no cluster is usable: {why}",
            remedy="on a login node, try again when `scontrol ping` answers; to use only this machine, run "
            "`hpcbench init --set executor=local`",
        )
    return found


def _partitions(described: Sequence[dict[str, str]], say: Say) -> dict[str, Partition]:
    nodes = slurm.nodes_by_partition()
    known: dict[str, Partition] = {}
    for partition in described:
        name = partition["PartitionName"]
        own = nodes.get(name)
        gpus = own.gpus if own is not None else {}
        limit = partition.get("MaxTime", "")
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(gpus.items()))
        say(f"partition {name}: {listed or 'no typed GPUs'}, time limit {limit or 'unknown'}")
        known[name] = Partition(
            time_limit=limit if re.fullmatch(r"(\d+-)?\d{1,2}:\d{2}:\d{2}", limit) else None,
            nodes=own.count if own is not None else None,
            cpus=own.cpus if own is not None else None,
            memory_gb=own.memory_gb if own is not None else None,
            # GPUs without a type are unknown here: then the profile does not mention them.
            gpus=gpus if own is not None and (gpus or "gpu" not in ",".join(own.gres)) else None,
            whole_nodes=partition.get("OverSubscribe", partition.get("Shared")) == "EXCLUSIVE",
        )
    return known


def _admits(partition: dict[str, str], account: str) -> bool:
    """Whether a partition accepts an account's jobs, as far as its description says."""
    allowed, denied = partition.get("AllowAccounts", "ALL"), partition.get("DenyAccounts", "")
    if account and account in denied.split(","):
        return False
    return not account or allowed == "ALL" or account in allowed.split(",")


def _account(ask: Ask, say: Say) -> str:
    """The account to charge; empty: Slurm's default."""
    user = getpass.getuser()
    found = parse_associations(
        _asked("sacctmgr", "-nP", "show", "assoc", f"user={user}", "format=account,maxsubmit")
    )
    for limit in {one.max_submit for one in found if one.max_submit is not None}:
        say(f"your limit of jobs in the queue: {limit} (MaxSubmitJobs)")
    accounts = list(dict.fromkeys(one.account for one in found))
    usual = _asked("sacctmgr", "-nP", "show", "user", user, "format=defaultaccount").strip()
    default = usual if usual in accounts or not accounts else accounts[0]
    if len(accounts) == 1:
        say(f"account: {accounts[0]}, your only account")
        return accounts[0]
    choices = [Choice(name, "your default" if name == usual else "") for name in accounts]
    answer = ask("slurm.account", "Account to charge", choices, default)
    say(f"account: {answer or 'none: Slurm uses its default'}")
    return answer


def _partition(
    ask: Ask, say: Say, known: dict[str, Partition], usable: Sequence[str], default: str
) -> str:
    """The partition of workers: one with GPUs, if there is any."""
    with_gpus = [name for name in sorted(usable) if known[name].gpus]
    fit = with_gpus or list(usable)
    if not fit:
        return ""
    first = default if default in fit else fit[0]
    if len(fit) == 1:
        say(f"partition: {first}")
        return first
    choices = [Choice(name, _in_words(known[name])) for name in fit]
    answer = ask("slurm.partition", "Partition of workers", choices, first)
    say(f"partition: {answer}, one of {len(fit)} suitable")
    return answer if answer in known else first


def _in_words(partition: Partition) -> str:
    gpus = ", ".join(f"{count} × {kind}" for kind, count in sorted((partition.gpus or {}).items()))
    return ", ".join(one for one in (gpus, partition.time_limit or "") if one)


def _with_gpu_option(site: SlurmSite, say: Say) -> SlurmSite:
    """The first GPU option that sbatch accepts here; `--gres` if sbatch rejects all for another reason."""
    kind = site.gpu_gres.partition(":")[2]
    one = f"{kind}:1" if kind else "1"
    tries = {"gres": f"--gres={site.gpu_gres}:1", "gpus-per-node": f"--gpus-per-node={one}"}
    tries["gpus"] = f"--gpus={one}"
    for option, words in tries.items():
        command = ["sbatch", "--test-only", "--time=1", "--ntasks=1", words, "--wrap=true"]
        command += [f"--partition={site.partition}"] if site.partition else []
        command += [f"--account={site.account}"] if site.account else []
        if printed(command, PATIENCE) is not None:
            say(f"jobs request a GPU with {words}")
            return site.model_copy(update={"gpu_option": option})
    say("sbatch refuses jobs with a GPU: `hpcbench doctor` shows the reason")
    return site


@dataclass(frozen=True, slots=True)
class Association:
    """A user's accounting record for one account."""

    account: str
    """Account."""
    max_submit: int | None
    """Largest number of jobs in the queue; None: no own limit."""


def parse_associations(text: str) -> list[Association]:
    """Lines of `sacctmgr -nP show assoc format=account,maxsubmit`."""
    found = []
    for line in text.splitlines():
        account, bar, limit = line.partition("|")
        if bar and account:
            found.append(Association(account, int(limit) if limit.isdigit() else None))
    return found


# --- GPUs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """Output of `nvidia-smi` on a node."""

    driver: str
    """Version of the driver, `550.54.15`."""
    cuda: str | None
    """Newest CUDA that the driver supports, `12.4`."""
    names: tuple[str, ...] = ()
    """Names of its GPUs."""
    memory_gb: float | None = None
    """Memory of the smallest GPU, GiB."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{self.names.count(one)} × {one}" for one in dict.fromkeys(self.names))
        memory = f" of {self.memory_gb:g} GiB" if self.memory_gb is not None else ""
        takes = f", CUDA {self.cuda}" if self.cuda is not None else ""
        return f"{kinds or 'none visible'}{memory}, driver {self.driver}{takes}"


def gpus_here() -> NodeGpus | None:
    """The GPUs of this machine; None: no driver answers."""
    return parse_smi(_asked("nvidia-smi", "-q"))


def parse_smi(text: str) -> NodeGpus | None:
    """Parsed output of `nvidia-smi -q`; None: no driver answered."""

    def all_of(title: str, value: str) -> list[str]:
        return re.findall(rf"^\s*{title}\s*:\s*({value})", text, re.MULTILINE)

    driver = all_of("Driver Version", r"\d[\d.]*")
    if not driver:
        return None
    cuda = all_of("CUDA (?:UMD )?Version", r"\d+\.\d+")
    names = [one.strip() for one in all_of("Product Name", r"[^\n]+")]
    room = re.findall(r"^\s*FB Memory Usage\s*\n\s*Total\s*:\s*(\d+) MiB", text, re.MULTILINE)
    memory = round(min(map(int, room)) / 1024, 1) if room else None
    return NodeGpus(driver[0].rstrip("."), cuda[0] if cuda else None, tuple(names), memory)


# --- folders ----------------------------------------------------------------------------------------


def _home(ask: Ask, say: Say) -> str:
    """The folder of experiments and caches.

    Raises:
        EnvironmentFault: the user can write to no folder that may contain it.
    """
    if "HPCBENCH_HOME" in os.environ:
        say(f"home: {home()} (HPCBENCH_HOME)")
        return str(home())
    found = list(_homes())
    if not found:
        what = f"no folder for experiments and caches: {Path.home()} is not a folder that you can write to"
        raise EnvironmentFault(what, remedy="set HPCBENCH_HOME to one")
    default = next((one.value for one in found if OFTEN_PURGED not in one.detail), found[-1].value)
    answer = default
    if len(found) > 1:
        question = "Folder of experiments and caches, on the shared file system"
        answer = ask("home", question, found, default) or default
    say(f"home: {answer}")
    return answer


def _homes() -> Iterator[Choice]:
    seen: set[Path] = set()
    own = Path.home()
    named = [
        (name, Path(os.environ[name])) for name in (*PERMANENT, *PURGED) if os.environ.get(name)
    ]
    for name, folder in (*named, ("HOME", own)):
        real = folder.resolve()
        if real in seen or not real.is_dir() or not os.access(real, os.W_OK):
            continue
        seen.add(real)
        facts = [f"${name}", f"{shutil.disk_usage(real).free / 1e9:.0f} GB free"]
        facts += [OFTEN_PURGED] if name in PURGED else []
        facts += [quota] if (quota := _quota(real)) else []
        # Where hpcbench was cloned into such a folder, experiments do not belong among its source.
        cloned = (folder / "hpcbench" / "pyproject.toml").exists()
        place = folder / ("hpcbench-home" if cloned else "hpcbench")
        yield Choice(str(place), ", ".join(facts))


def _quota(folder: Path) -> str:
    """Usage of a quota there, in words; empty: unknown."""
    found = lustre_quotas(folder) or quotas("-f", str(folder))
    return in_words(found[0]) if found else ""


def in_words(quota: Quota) -> str:
    """`12 of 50 GB used, 30 of 100 files`."""
    said = []
    if quota.size:
        said.append(f"{quota.used / 1e6:.0f} of {quota.size / 1e6:.0f} GB used")
    if quota.files:
        said.append(f"{quota.files_used} of {quota.files} files")
    return ", ".join(said)


# --- containers, proxies, commands ------------------------------------------------------------------


def _container(say: Say) -> tuple[ContainerSite, tuple[str, ...]]:
    """The program that runs images, and the module that provides it."""
    system = _module_system()
    if system is not None:
        say(f"modules: {system}")
    for program in ("apptainer", "singularity"):
        if shutil.which(program):
            say(f"containers: {program}")
            return ContainerSite(program=program), ()
    if system is not None:
        text = _asked("bash", "-lc", "module -t avail apptainer singularity 2>&1")
        if (module := module_of_containers(text)) is not None:
            say(f"containers: module {module}")
            return ContainerSite(program=module.partition("/")[0]), (module,)
    say("containers: neither apptainer nor singularity on PATH")
    return ContainerSite(), ()


def module_of_containers(text: str) -> str | None:
    """The module to load, from `module -t avail`: the default one, else the last; Apptainer comes first."""
    names = [line.strip() for line in text.splitlines() if not line.rstrip().endswith(":")]
    for program in ("apptainer", "singularity"):
        own = [name for name in names if re.match(rf"{program}(/|$|[\s(<])", name)]
        marked = [name for name in own if re.search(r"[(<,]([a-z]*:)*(default|D)\b", name)]
        if own:
            return re.split(r"[\s(<]", (marked or own)[-1])[0].rstrip("/")
    return None


def _module_system() -> str | None:
    if version := os.environ.get("LMOD_VERSION"):
        return f"Lmod {version}"
    return "Environment Modules" if os.environ.get("MODULESHOME") else None


def _proxies(say: Say) -> dict[str, str]:
    """The proxies of this shell; a proxy with a password becomes a reference."""
    found = {name: os.environ[name] for name in PROXIES if os.environ.get(name)}
    for name, value in found.items():
        if re.search(r"//[^/@]*:[^/@]*@", value):
            found[name] = f"${{env:{name}}}"
    if found:
        say(f"proxies: {', '.join(found)} of this shell; compute nodes may need others, or none")
    return found


def _asked(*command: str) -> str:
    """Output of a command; empty if the command is missing, fails or does not answer."""
    return printed(command, PATIENCE) or ""
