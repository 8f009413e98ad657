"""The configuration of the one-machine cluster, and the daemons that make it."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

from .system import Daemon, LabError, run

CLUSTER = "hpcbench"
USER = "hpcuser"
ACCOUNT = "docs"
NODES = ("n1", "n2", "n3", "n4")
GPUS = 2
CTLD_PORT, DBD_PORT, NODE_PORT = 26817, 26819, 27001

SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# cred_expire is also how long a requeued job waits before it starts again (120 s by default).
AuthInfo=socket={home}/run/munged/socket,cred_expire=15
StateSaveLocation={home}/slurm/state
SlurmdSpoolDir={home}/slurm/spool-%n
SlurmctldPidFile={home}/run/slurm/slurmctld.pid
SlurmdPidFile={home}/run/slurm/%n.pid
SlurmctldLogFile={home}/log/slurmctld.log
SlurmdLogFile={home}/log/slurmd-%n.log
MpiDefault=none
ProctrackType={proctrack}
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5

# A dead node is noticed after some fifteen seconds and serves again as soon as it answers.
SlurmdTimeout=8
MessageTimeout=5
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
MinJobAge=300
JobRequeue=1
MaxArraySize=1001

SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={home}/run/munged/socket
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits
AccountingStoreFlags=job_comment

GresTypes=gpu
NodeName=n[1-{count}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4 \
RealMemory=64000 Gres=gpu:fake:{gpus}
# `main` neither preempts nor is preempted; `high` requeues the jobs of `low`.
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 PreemptMode=OFF MaxTime=1-0 DefaultTime=30
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE MaxTime=1-0 DefaultTime=30
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=1-0 DefaultTime=30
"""

SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={home}/run/munged/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
PidFile={home}/run/slurm/slurmdbd.pid
LogFile={home}/log/slurmdbd.log
StorageType=accounting_storage/mysql
# Over MariaDB's socket (MYSQL_UNIX_PORT), where root needs no password.
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""


def cgroup_version() -> int:
    """1 where the freezer's own hierarchy can be written (hybrid too), 2 where all is unified."""
    return 1 if os.access("/sys/fs/cgroup/freezer/cgroup.procs", os.W_OK) else 2


def write_configuration(home: Path) -> bool:
    """Make the fake GPUs and write all configuration files; whether any of them changed."""
    host = socket.gethostname().partition(".")[0]
    names = {
        "cluster": CLUSTER,
        "host": host,
        "home": home,
        "ctld_port": CTLD_PORT,
        "dbd_port": DBD_PORT,
        "count": len(NODES),
        "first": NODE_PORT,
        "last": NODE_PORT + len(NODES) - 1,
        "gpus": GPUS,
        # With v1 a job's cgroup catches also what detaches itself (Apptainer's squashfuse).
        # With v2 Slurm 22.05 wants systemd's help, which is not here: it follows parents instead.
        "proctrack": "proctrack/cgroup" if cgroup_version() == 1 else "proctrack/linuxproc",
    }
    etc = home / "slurm/etc"
    for folder in (etc, home / "slurm/state", *(home / f"slurm/spool-{node}" for node in NODES)):
        folder.mkdir(parents=True, exist_ok=True)
    gres = ["AutoDetect=off"]
    for node in NODES:
        _make_gpus(home / "dev" / node)
        gres.append(f"NodeName={node} Name=gpu Type=fake File={home}/dev/{node}/gpu[0-{GPUS - 1}]")
    texts = {
        "slurm.conf": SLURM_CONF.format(**names),
        "slurmdbd.conf": SLURMDBD_CONF.format(**names),
        "cgroup.conf": f"CgroupPlugin=cgroup/v{cgroup_version()}\nIgnoreSystemd=yes\n"
        "CgroupAutomount=yes\n",
        "gres.conf": "\n".join(gres) + "\n",
    }
    changed = False
    for name, text in texts.items():
        path = etc / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed = True
        # slurmdbd refuses its file when others may read it; users need the rest.
        path.chmod(0o600 if name == "slurmdbd.conf" else 0o644)
    return changed


def _make_gpus(folder: Path) -> None:
    """Slurm takes character devices only, so each fake GPU is another /dev/null."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(GPUS):
        device = folder / f"gpu{number}"
        if device.is_char_device():
            continue
        device.unlink(missing_ok=True)
        try:
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            raise LabError("cannot make the fake GPUs: mknod is not permitted here") from None


def prepare_munge(home: Path) -> None:
    """A key and a place for the socket, of the lab's own."""
    key = home / "munge/key"
    for path, mode in ((home / "run/munged", 0o755), (key.parent, 0o700)):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        shutil.chown(path, "munge", "munge")
    if not key.exists() or key.stat().st_size < 32:
        key.unlink(missing_ok=True)
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(128))
        shutil.chown(key, "munge", "munge")


def prepare_database(home: Path) -> None:
    """The database's own files; half-made ones are made again."""
    folder, data = home / "run/mariadbd", home / "mariadb"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.chown(folder, "mysql", "mysql")
    if not (data / "complete").exists():
        shutil.rmtree(data, ignore_errors=True)
        run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=mysql"]
            + ["--auth-root-authentication-method=socket", "--skip-test-db"],
            what="make the accounting database",
        )
        (data / "complete").touch()


def daemons(home: Path) -> dict[str, Daemon]:
    """All daemons of the cluster by name, in the order they start; none is started here."""
    munge, maria = home / "run/munged", home / "run/mariadbd"
    munged = ["munged", "--foreground", "--force", f"--socket={munge}/socket"]
    munged += [f"--pid-file={munge}/pid", f"--key-file={home}/munge/key"]
    munged += [f"--seed-file={home}/munge/seed", f"--log-file={home}/munge/munged.log"]
    mariadbd = ["mariadbd", "--no-defaults", "--user=mysql", "--skip-networking", "--skip-log-bin"]
    mariadbd += [f"--datadir={home}/mariadb", f"--socket={maria}/socket"]
    # No test needs what a power cut may lose here; every flush costs a test its time.
    mariadbd += [f"--pid-file={maria}/pid", "--innodb-flush-log-at-trx-commit=0"]
    mariadbd += ["--innodb-lock-wait-timeout=900", "--innodb-log-file-size=32M"]
    found = [
        Daemon("munged", munged, home, at=munge / "socket", user="munge"),
        Daemon("mariadbd", mariadbd, home, at=maria / "socket"),
        Daemon("slurmdbd", ["slurmdbd", "-D"], home, at=DBD_PORT),
        Daemon("slurmctld", ["slurmctld", "-D"], home, at=CTLD_PORT),
        *(
            Daemon(node, ["slurmd", "-D", "-N", node], home, at=NODE_PORT + number)
            for number, node in enumerate(NODES)
        ),
    ]
    return {daemon.name: daemon for daemon in found}


def daemon_environment(home: Path) -> dict[str, str]:
    return {
        "SLURM_CONF": f"{home}/slurm/etc/slurm.conf",
        "MYSQL_UNIX_PORT": f"{home}/run/mariadbd/socket",  # slurmdbd.conf has no word for it
    }
