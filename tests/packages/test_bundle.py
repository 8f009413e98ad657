"""hpcbench on a machine without internet: one file carries it there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.environments.offline_packages import wheels_for
from hpcbench.environments.packages import probe, saved_wheels

pytestmark = pytest.mark.timeout(900)


def test_a_login_node_without_internet_installs_hpcbench_from_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, there = tmp_path / "bundle.tar", tmp_path / "there"
    assert main(["images", "save", "--with-hpcbench", "--out", str(bundle)]) == 0
    assert "sh hpcbench-install/install.sh FOLDER" in capsys.readouterr().out
    there.mkdir()
    subprocess.run(["tar", "xf", str(bundle), "-C", str(there), "hpcbench-install"], check=True)
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))
    }
    # Else it would compile some thousand modules of which next to none is imported.
    env = clean | {
        "PIP_CONFIG_FILE": "/dev/null",
        "UV_COMPILE_BYTECODE": "0",
        "HOME": str(tmp_path),
    }
    install = [
        "sh",
        str(there / "hpcbench-install/install.sh"),
        str(there / "here"),
        sys.executable,
    ]
    # Without a network at all: another namespace has no interface that is up.
    done = subprocess.run(
        ["unshare", "--net", *install], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("hpcbench ")
    assert not list(there.glob("here/.uv")), "what it needed meanwhile is gone"
    (installer,) = there.glob("here/lib/python3*/site-packages/polars-*.dist-info/INSTALLER")
    assert installer.read_text() == "uv"
    program = there / "here/bin/hpcbench"
    listed = subprocess.run(
        [str(program), "plugins", "list"], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert "apptainer" in listed.stdout, listed.stderr
    tasks = subprocess.run([str(program), "schema"], env=env, capture_output=True, text=True)
    assert tasks.returncode == 0, tasks.stderr
    # A plugin of the user's own is built there, and the portal has what it needs.
    (tmp_path / "home").mkdir()
    env |= {"HOME": str(tmp_path / "home"), "HPCBENCH_HOME": str(tmp_path / "home/hpcbench")}
    for verb in (["new", "metrics", "same_total"], ["check", "hpcbench-same-total"]):
        done = subprocess.run(
            ["unshare", "--net", str(program), "plugins", *verb],
            env=env, cwd=tmp_path / "home", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    portal = [str(program.with_name("python")), "-c", "import hpcbench.portal.serve"]
    subprocess.run(portal, env=env, check=True)


BESIDE = """
import json, sys
from pathlib import Path
from hpcbench.environments.packages import packages_for, probe
print(packages_for(probe([sys.argv[1]], "test"), Path(sys.argv[2])))
"""


def test_an_image_gets_its_packages_from_the_bundle_without_internet(tmp_path: Path) -> None:
    """A bare Python is in the place of the image: `tests/apptainer` has a real one."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python, cache = bare / "bin/python", tmp_path / "cache"
    probed = probe([str(python)], "test")
    argv = ["unshare", "--net", sys.executable, "-c", BESIDE, str(python), str(cache)]
    # uv's cache holds what earlier installations fetched; a cluster's is empty.
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))
    }

    refused = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert "cannot fetch packages" in refused.stderr
    assert "`hpcbench images save`" in refused.stderr

    saved_wheels(probed, cache).parent.mkdir(parents=True)
    assert wheels_for(probed, saved_wheels(probed, cache), tmp_path / "elsewhere")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folder = done.stdout.strip()
    serves = [str(python), "-c", "import aiohttp, pydantic, uvicorn, hpcbench.wrapper"]
    subprocess.run(serves, env=env | {"PYTHONPATH": folder}, check=True)


def test_a_bundle_of_nothing_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["images", "save", "--out", str(tmp_path / "x.tar")]) == 2
    assert "the command names no image" in capsys.readouterr().err
