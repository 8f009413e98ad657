"""Arguments of Apptainer and Singularity; tests/apptainer shows that they work."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.environments import sif
from hpcbench.environments.sif import Program
from hpcbench.environments.sources import Source
from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite

DIGEST = "sha256:" + "1" * 64


def wrapped(tmp_path: Path, tool: str = "apptainer version 1.4.5", **container: object) -> Command:
    image, private = tmp_path / "x.sif", tmp_path / "private"
    image.touch()
    private.mkdir()
    site = ContainerSite.model_validate({"program": "/bin/true", **container})
    environment = Environment("apptainer", str(image), None, details={"apptainer": tool})
    return environments.wrap(environment, ["python"], [str(private)], {"A": "$HOME"}, 1, site)


@pytest.mark.parametrize(
    ("tool", "variable", "no_eval"),
    [
        ("apptainer version 1.4.5", "APPTAINERENV_A", True),
        ("singularity-ce version 4.1.2", "SINGULARITYENV_A", True),
        ("singularity version 3.8.7", "SINGULARITYENV_A", False),
    ],
)
def test_each_program_is_spoken_to_in_its_own_words(
    tmp_path: Path, tool: str, variable: str, no_eval: bool
) -> None:
    command = wrapped(tmp_path, tool)
    assert command.env[variable] == "$HOME"
    assert ("--no-eval" in command.argv) == no_eval


def test_settings_of_the_nodes_network_reach_the_engine_and_others_of_the_job_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    monkeypatch.setenv("FI_PROVIDER", "cxi")
    monkeypatch.setenv("FIRST", "mine")
    inside = wrapped(tmp_path).env
    assert inside["APPTAINERENV_NCCL_IB_HCA"] == "mlx5_0"
    assert inside["APPTAINERENV_FI_PROVIDER"] == "cxi"
    assert "APPTAINERENV_FIRST" not in inside


def test_gpus_of_amd_and_no_network_are_asked_for(tmp_path: Path) -> None:
    words = " ".join(wrapped(tmp_path, gpu_maker="amd", network="none").argv)
    assert "--rocm" in words and "--nv" not in words
    assert "--net --network none" in words


def test_a_build_that_will_not_fit_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sif, "download_size", lambda reference, insecure: 1 << 50)
    program = Program("/bin/false", "apptainer version 1.4.5", {
        "APPTAINER_CACHEDIR": str(tmp_path), "APPTAINER_TMPDIR": str(tmp_path),
    }, ContainerSite())  # fmt: skip
    source = Source("docker", f"registry/x@{DIGEST}", DIGEST)
    with pytest.raises(EnvironmentFault, match=r"\(1024.0 TiB\) needs about 5120.0 TiB"):
        program.build(source, tmp_path / "x.sif", lambda line: None)
    assert not list(tmp_path.glob("*.sif"))


RECORDS = """\
#!/bin/sh
echo "$@" >> {recorded}
case $1 in
    inspect) echo '{{"data": {{"attributes": {{"labels": {labels}}}}}}}' ;;
    *) for word; do target=$file file=$word; done; touch "$target" ;;
esac
"""


def build_arguments(
    tmp_path: Path, tool: str, source: Source, labels: str = "{}", **site: object
) -> list[str]:
    """The words of the build, by a program that writes down what it is asked."""
    recorded, program = tmp_path / "recorded", tmp_path / "program"
    program.write_text(RECORDS.format(recorded=recorded, labels=labels))
    program.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "APPTAINER_CACHEDIR": str(tmp_path)}
    env["APPTAINER_TMPDIR"] = str(tmp_path)
    here = Program(str(program), tool, env, ContainerSite.model_validate(site))
    here.build(source, tmp_path / "x.sif", lambda line: None)
    return recorded.read_text().splitlines()[0].split()


@pytest.mark.parametrize("tool", ["singularity-ce version 4.1.1", "singularity version 3.8.7"])
@pytest.mark.parametrize(
    ("source", "address"),
    [
        (Source("oci", f"/there/oci@{DIGEST}", DIGEST), f"oci:/there/oci@{DIGEST}"),
        (Source("docker-archive", "/there/x.tar", DIGEST), "docker-archive:/there/x.tar"),
        (Source("docker-daemon", "me/x:1", DIGEST), "docker-daemon:me/x:1"),
    ],
)
def test_singularity_is_given_an_address_for_a_definition_file_is_not_everybodys(
    tmp_path: Path, tool: str, source: Source, address: str
) -> None:
    labels = json.dumps({sif.FROM: source.origin})
    words = build_arguments(tmp_path, tool, source, labels)
    assert words == ["build", str(tmp_path / "x.sif"), address]


def test_an_image_that_singularity_made_of_something_else_is_refused(tmp_path: Path) -> None:
    source = Source("oci", f"/there/oci@{DIGEST}", DIGEST)
    labels = json.dumps({sif.FROM: "/there/oci@sha256:" + "2" * 64})
    with pytest.raises(EnvironmentFault, match="is labelled sha256:2222"):
        build_arguments(tmp_path, "singularity-ce version 4.1.1", source, labels)


@pytest.mark.parametrize(
    ("tool", "proot", "subordinate", "root"),
    [
        ("apptainer version 1.4.5", True, False, ["--fakeroot"]),
        ("singularity-ce version 4.1.1", False, False, ["--fakeroot"]),
        ("singularity-ce version 4.1.1", True, True, ["--fakeroot"]),
        ("singularity-ce version 4.1.1", True, False, []),
    ],
)
def test_singularity_runs_recipes_by_proot_without_subordinate_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    tool: str, proot: bool, subordinate: bool, root: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "getuid", lambda: 20001)
    monkeypatch.setattr(sif, "has_subordinate_ids", lambda: subordinate)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if proot else None)
    source = Source("recipe", "/there/x.def", DIGEST, text="Bootstrap: docker\nFrom: x\n")
    source = replace(source, origin=str(tmp_path / "own.def"))
    words = build_arguments(tmp_path, tool, source, json.dumps({sif.LABEL: DIGEST}))
    assert [word for word in words if word == "--fakeroot"] == root
    assert ("--mksquashfs-args" in words) == tool.startswith("apptainer")


def test_only_apptainer_is_asked_to_unpack_where_nothing_can_be_mounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SingularityCE 4.1.1: `unknown flag: --unsquash`."""
    monkeypatch.setattr(sif, "_must_unpack", lambda program: True)
    assert sif.start_options("/bin/true", "apptainer version 1.4.5") == ["--unsquash"]
    assert sif.start_options("/bin/true", "singularity-ce version 4.1.1") == []
