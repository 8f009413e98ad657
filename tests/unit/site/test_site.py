"""`hpcbench doctor` on what images run in; the rest of it on a real cluster: tests/slurm/test_spine.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcbench.schema.site import ContainerSite, Site
from hpcbench.site.doctor import Check, checks


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))


def container_checks(**container: object) -> dict[str, Check]:
    site = Site(name="default", container=ContainerSite.model_validate(container))
    return {check.name: check for check in checks(site)}


def test_an_apptainer_that_is_too_old_is_found_before_a_submit(tmp_path: Path) -> None:
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\necho apptainer version 1.0.3\n")
    program.chmod(0o755)
    found = container_checks(program=str(program))
    assert found["container"].state == "failed"
    assert (
        "apptainer version 1.0.3 is too old: hpcbench needs apptainer 1.1 or newer"
        in found["container"].detail
    )
    assert {"namespaces", "fuse", "recipes"} <= set(found)


def test_a_program_that_never_answers_fails_its_check_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.site.doctor.PATIENCE", 0.5)
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\necho apptainer >&2; sleep 600; true\n")
    program.chmod(0o755)
    found = container_checks(program=str(program))
    assert (found["container"].state, found["container"].detail) == ("failed", "no answer in 0.5 s")
    assert "namespaces" in found


def test_no_docker_is_found_before_a_submit(tmp_path: Path) -> None:
    found = container_checks(manager="docker", options={"socket": str(tmp_path / "none")})[
        "container"
    ]
    assert (found.state, "there is no Docker on this machine" in found.detail) == ("failed", True)


def test_skypilot_is_asked_before_a_submit(tmp_path: Path) -> None:
    """The answers are those of SkyPilot 0.14.1, with a server and without."""
    program = tmp_path / "sky"
    options = {"program": str(program), "max_cost": 1, "max_hours": 1}
    found = container_checks(manager="skypilot", options=options)["container"]
    assert found.state == "failed"
    assert found.detail.startswith(f"there is no SkyPilot: {program}")
    version = "SkyPilot client version: 0.14.1, commit: 7e5\n"
    for said, state, detail in (
        (
            "Using SkyPilot API server: http://h\n├── Status: ApiServerStatus.HEALTHY",
            "ok",
            "SkyPilot 0.14.1, server http://h",
        ),
        (
            "Using SkyPilot API server: http://h\n├── Status: ApiServerStatus.UNHEALTHY",
            "failed",
            "SkyPilot has no API server: Using SkyPilot API server: http://h",
        ),
        (
            "No SkyPilot API server is connected\n├── To connect: sky api login",
            "failed",
            "SkyPilot has no API server: No SkyPilot API server is connected",
        ),
    ):
        program.write_text(f"#!/bin/sh\ncat <<'end'\n{version}{said}\nend\n")
        program.chmod(0o755)
        found = container_checks(manager="skypilot", options=options)["container"]
        assert (found.state, found.detail[: len(detail)]) == (state, detail)


def test_a_wrong_option_of_docker_is_found_before_a_submit() -> None:
    found = container_checks(manager="docker", options={"sock": "/x"})["container"]
    assert found.state == "failed"
    assert "sock" in found.detail


def test_a_laptop_hears_of_itself_and_not_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no Apptainer, no Slurm, no driver
    monkeypatch.setattr(sys, "prefix", "/tmp/env")
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    found = {check.name: check for check in checks(Site(name="default"))}
    assert found["executor"].detail.startswith("local: engines run on this machine (")
    assert "models run on its CPUs" in found["gpus"].detail
    assert found["container"].state == "warning"
    for check in found.values():
        for word in ("compute node", "cluster", "module load", "shared", "Slurm"):
            assert word not in f"{check.detail} {check.remedy}", check


def test_a_login_node_without_a_profile_hears_of_its_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hpcbench.slurm.on_cluster", lambda: True)
    first = next(iter(checks(Site(name="default"))))
    assert (first.state, first.remedy) == ("warning", "`hpcbench init` writes a site profile")
    assert next(iter(checks(Site(name="default", executor="local")))).state == "ok"
