"""hpcbench on a machine without internet: one file carries it there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.cli.main import main

pytestmark = pytest.mark.timeout(900)


def test_a_login_node_without_internet_installs_hpcbench_from_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, there = tmp_path / "bundle.tar", tmp_path / "there"
    assert main(["images", "save", "--with-hpcbench", "--out", str(bundle)]) == 0
    assert "sh hpcbench/install.sh FOLDER" in capsys.readouterr().out
    there.mkdir()
    subprocess.run(["tar", "xf", str(bundle), "-C", str(there), "hpcbench"], check=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env = clean | {"PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path)}
    install = ["sh", str(there / "hpcbench/install.sh"), str(there / "here"), sys.executable]
    # Without a network at all: another namespace has no interface that is up.
    done = subprocess.run(
        ["unshare", "--net", *install], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("hpcbench ")
    program = there / "here/bin/hpcbench"
    listed = subprocess.run(
        [str(program), "plugins", "list"], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert "apptainer" in listed.stdout, listed.stderr
    tasks = subprocess.run([str(program), "schema"], env=env, capture_output=True, text=True)
    assert tasks.returncode == 0, tasks.stderr


def test_a_bundle_of_nothing_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["images", "save", "--out", str(tmp_path / "x.tar")]) == 2
    assert "the command names no image" in capsys.readouterr().err
