"""Virtual environments, and the command lines that come out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import Environment
from hpcbench.schema.site import ContainerSite

pytestmark = pytest.mark.long

HERE = ContainerSite(program="/bin/true")


def test_images_and_virtual_environments_are_distinguished() -> None:
    assert environments.kind_of(None) == environments.kind_of("venv:/x") == "venv"
    assert environments.kind_of("docker://x") == environments.kind_of("/x.sif") == "apptainer"


def test_this_python_has_what_the_wrapper_needs(tmp_path: Path) -> None:
    found = environments.prepare("", tmp_path, HERE)
    assert (found.kind, found.path, found.packages) == ("venv", sys.executable, None)
    assert found.digest is not None
    assert found.digest.startswith("sha256:")


def test_a_bare_virtual_environment_gets_packages_with_their_entry_points(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    found = environments.prepare(f"venv:{bare}", tmp_path / "cache", HERE)
    command = environments.wrap(
        found,
        ["python", "-c", "import hpcbench.plugins as p; print(p.load('engines', 'vllm').api)"],
        [], {}, 0, HERE,
    )  # fmt: skip
    done = subprocess.run(
        command.argv, env={**os.environ, **command.env}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
    assert found.packages is not None
    first = Path(found.packages).stat()
    again = environments.prepare(f"venv:{bare}", tmp_path / "cache", HERE)
    assert again == found
    assert Path(found.packages).stat() == first, "the packages were installed a second time"


def test_a_folder_that_is_no_environment_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a virtual environment"):
        environments.prepare(f"venv:{tmp_path}", tmp_path, HERE)


def test_a_container_sees_what_is_mounted_and_no_value_is_in_its_argv(tmp_path: Path) -> None:
    sif, private, model = tmp_path / "x.sif", tmp_path / "private", tmp_path / "model"
    sif.touch()
    private.mkdir()
    model.mkdir()
    command = environments.wrap(
        Environment("apptainer", str(sif), None),
        ["python", "-m", "hpcbench.wrapper"],
        [str(private), f"{model}:{model}:ro"],
        {"HF_TOKEN": "hf_secret,with comma"},
        1,
        HERE,
    )
    argv = list(command.argv)
    assert argv[-3:] == ["python3", "-m", "hpcbench.wrapper"]
    assert "--nv" in argv
    assert "--containall" in argv
    assert f"{model}:{model}:ro" in argv
    assert not any("hf_secret" in word for word in argv)
    assert "hf_secret,with comma" in command.env.values()


def test_a_mount_that_is_not_there_is_reported_before_the_container_starts(tmp_path: Path) -> None:
    sif = tmp_path / "x.sif"
    sif.touch()
    with pytest.raises(EnvironmentFault, match="gone"):
        environments.wrap(
            Environment("apptainer", str(sif), None),
            ["python"], [str(tmp_path), str(tmp_path / "gone")], {}, 0, HERE,
        )  # fmt: skip
