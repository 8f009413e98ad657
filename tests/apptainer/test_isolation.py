"""A hostile engine in a container, and what a container leaves when it is killed; on a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.user import User, until

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1200)]


def test_a_hostile_engine_reads_nothing_but_its_model_and_writes_nothing_but_its_folder(
    slurm_user: User, image: str, program: Path
) -> None:
    user, folder = slurm_user, slurm_user.folder / "hostile"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("hostile.py"), folder)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "hostile"\nversion = "1.0"\n'
        '[project.entry-points."hpcbench.engines"]\nhostile = "hostile:Engine"\n'
        '[tool.hatch.build.targets.wheel]\nonly-include = ["hostile.py"]\n'
    )
    secret = user.folder / "token"
    secret.write_text("s3cret")
    secret.chmod(0o644)
    user.environment |= {"RUN_MODE": "dev", "MY_TOKEN": "s3cret", "SSH_AUTH_SOCK": "/tmp/agent"}
    user.at_site(network="none", program=str(program))
    user.write("packages/hostile.yaml", {
        "name": "hostile", "provides": {"engines": ["hostile"]},
        "source": {"type": "local", "path": str(folder)},
    })  # fmt: skip
    options = {
        "secret": str(secret), "home": str(user.folder),
        "names": ["MY_TOKEN", "SSH_AUTH_SOCK", "HPCBENCH_HOME"],
        "programs": ["slurmd", "slurmstepd", "bash", "/usr/sbin/slurmd"],
        "port": int(image.removeprefix("docker://").partition("/")[0].rpartition(":")[2]),
    }  # fmt: skip
    user.write_model("hostile", image=image, engine="hostile", gpus=1, engine_options=options)
    plan = user.plan("attacked", [{"name": "x", "ml_task": "vqa", "model": "hostile", "limit": 2,
                                   "dataset": "demo_vqa", "prompt": "demo_vqa"}])  # fmt: skip
    experiment = user.submit(plan)
    user.wait(experiment)
    logs = "".join(path.read_text() for path in user.experiment(experiment).rglob("*.log"))
    lines = [line for line in logs.splitlines() if line.startswith("FOUND ")]
    assert lines, logs[-3000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    assert found == {
        "secret file": "FileNotFoundError",
        "home": found["home"],
        "events": [],
        "password file": found["password file"],
        "munge": "FileNotFoundError",
        "environment": [],
        "processes": [],
        "into the model": "OSError",
        "into the packages": "OSError",
        "network": 111,
        "its own folder": "written",
    }
    assert found["password file"] in (False, "PermissionError")
    # Of her folder there is the way to what is mounted, and nothing beside it.
    assert "token" not in found["home"]


REAP = "from hpcbench.environments.orphans import reap; print(reap())"


def session_of(pid: int) -> int:
    """The session of a process; 0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


def helpers(user: User, container: subprocess.Popen[str]) -> list[int]:
    """FUSE helpers of one container: other tests run theirs beside it."""
    found = user.lab.run_as_user(["pgrep", "-u", "hpcuser", "squashfuse"]).stdout.split()
    return [pid for pid in map(int, found) if session_of(pid) == container.pid]


def test_the_fuse_helper_of_a_killed_container_is_ended_and_a_living_one_stays(
    slurm_user: User, image: str, shared_cache: Path
) -> None:
    user = slurm_user
    (built,) = user.json("images", "build", image)

    def start() -> subprocess.Popen[str]:
        words = ["apptainer", "-q", "exec", "--containall", built["path"], "sleep", "120"]
        process = subprocess.Popen(
            user.lab.user_argv(words), env=user.lab.env(), text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(lambda: bool(helpers(user, process)), 90, "a FUSE helper")
        return process

    def kill(process: subprocess.Popen[str]) -> None:
        """As the OOM killer does: all of the session but the helper."""
        for entry in Path("/proc").glob("[0-9]*/comm"):
            pid = int(entry.parent.name)
            with contextlib.suppress(OSError):
                if session_of(pid) == process.pid and "squashfuse" not in entry.read_text():
                    os.kill(pid, signal.SIGKILL)
        process.wait()

    dead, living = start(), start()
    try:
        kill(dead)
        time.sleep(1)
        assert len(helpers(user, dead)) == 1, "the helper ends by itself: nothing is to be reaped"
        assert "squashfuse" in user.lab.run_as_user([user.python, "-c", REAP]).stdout
        until(lambda: not helpers(user, dead), 60, "the orphan's end")
        assert len(helpers(user, living)) == 1, "a living container lost its helper"
    finally:
        kill(living)
        user.lab.run_as_user([user.python, "-c", REAP])
    until(lambda: not helpers(user, living), 60, "the end of the other")
