"""Which GPUs there are, which are ours, and whether a model fits: with a fake driver, and fake programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from hpcbench.monitor.devices import check_allocation, gpus, handles, parts, visible
from hpcbench.monitor.nvml import Gpu
from tests.fake_nvml import GIB, FakeGpu, FakeNvml

Machine = Callable[..., FakeNvml]

TWO = (
    FakeGpu("GPU-aaaa-1"),
    FakeGpu("GPU-bbbb-2", name="NVIDIA H100 80GB HBM3", total=85_520_809_984),
)


def program(folder: Path, name: str, printed: str, code: int = 0) -> list[str]:
    """A stand-in for a program that prints something."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return [str(path)]


def test_the_fake_has_only_what_the_real_library_has() -> None:
    names = [name for name in dir(FakeNvml) if name.lower().startswith("nvml")]
    assert len(names) > 20
    assert [name for name in names if not hasattr(pynvml, name)] == []


def test_a_machine_without_any_driver_has_no_gpus() -> None:
    assert gpus() == []


def test_gpus_are_reported_with_memory_driver_and_cuda(machine: Machine) -> None:
    fake = machine(*TWO)
    first, second = gpus()
    assert first == Gpu(
        0, "GPU-aaaa-1", "NVIDIA A100-SXM4-40GB", 40 * GIB, False, "580.65.06", "13.0"
    )
    assert (second.index, second.memory_bytes) == (1, 85_520_809_984)
    assert fake.users == 0, "the library was not let go"


def test_a_gpu_cut_into_mig_instances_is_listed_as_its_instances(machine: Machine) -> None:
    instances = [FakeGpu(f"MIG-{letter}", total=10 * GIB) for letter in "xyz"]
    machine(FakeGpu("GPU-a", mig=instances), FakeGpu("GPU-b"))
    found = gpus()
    assert [(gpu.index, gpu.uuid, gpu.mig) for gpu in found] == [
        (0, "MIG-x", True), (0, "MIG-y", True), (0, "MIG-z", True), (1, "GPU-b", False),
    ]  # fmt: skip
    assert handles() == ["MIG-x", "MIG-y", "MIG-z", "1"]


def test_without_the_library_nvidia_smi_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "{}, GPU-{}, NVIDIA A100-SXM4-40GB, 40960, 580.65.06\n"
    smi = program(tmp_path, "nvidia-smi", row.format(0, "a") + row.format(1, "b"))
    monkeypatch.setattr("hpcbench.monitor.devices._SMI", smi)
    assert gpus()[1] == Gpu(1, "GPU-b", "NVIDIA A100-SXM4-40GB", 40 * GIB, driver="580.65.06")


def test_a_driver_that_does_not_work_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    machine().driver_error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    words = "Failed to initialize NVML: Driver/library version mismatch"
    monkeypatch.setattr("hpcbench.monitor.devices._SMI", program(tmp_path, "smi", words, code=18))
    assert gpus() == []


def test_amds_cards_are_reported_by_rocm_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = {
        "card1": {"VRAM Total Memory (B)": "68702699520", "Card Series": "AMD Instinct MI250X"},
        "card0": {"VRAM Total Memory (B)": "68702699520", "Card Series": "AMD Instinct MI250X"},
        "system": {"Driver version": "6.7.0"},
    }
    rocm = program(tmp_path, "rocm-smi", json.dumps(cards))
    monkeypatch.setattr("hpcbench.monitor.devices._ROCM", rocm)
    assert [(gpu.index, gpu.name, gpu.memory_bytes) for gpu in gpus()] == [
        (0, "AMD Instinct MI250X", 68702699520), (1, "AMD Instinct MI250X", 68702699520),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "ours"),
    [
        ({}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [1, 0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "0,7"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "1"}, [0]),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "1"}, [1]),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "4,5"}, [0, 1]),  # the node shows only the job's
        ({"SLURM_JOB_ID": "7"}, []),
    ],
)
def test_the_environment_says_which_gpus_are_ours(
    environ: dict[str, str], ours: list[int], machine: Machine
) -> None:
    machine(*TWO)
    assert [gpu.index for gpu in visible(gpus(), environ)] == ours


def test_the_environments_own_names_are_given_away_but_for_those_of_no_gpu(
    machine: Machine,
) -> None:
    machine(*TWO)
    assert handles() == ["0", "1"]
    assert handles({"CUDA_VISIBLE_DEVICES": "GPU-bbbb-2,7"}) == ["GPU-bbbb-2"]


@pytest.mark.parametrize(
    ("needed", "memory", "environ", "said"),
    [
        (0, 900, {}, None),
        (2, 40, {}, None),
        (1, 80, {}, None),  # 79.6 GiB on a card that is sold as 80 GB
        (3, None, {}, "the model needs 3 GPUs, this worker has 2 (NVIDIA A100-SXM4-40GB, 40 GiB; "
            "NVIDIA H100 80GB HBM3, 79.6 GiB)"),
        (2, 80, {"CUDA_VISIBLE_DEVICES": "0"}, "the model needs 2 GPUs of 80 GB, this worker has 1 "
            "(NVIDIA A100-SXM4-40GB, 40 GiB)"),
        (1, 80, {"CUDA_VISIBLE_DEVICES": "0"}, "the model needs 1 GPU of 80 GB, this worker has 1 "
            "(NVIDIA A100-SXM4-40GB, 40 GiB)"),
        (1, None, {"CUDA_VISIBLE_DEVICES": ""}, "the model needs 1 GPU, this worker has none of the 2 on "
            "this node"),
    ],
)  # fmt: skip
def test_an_allocation_that_does_not_fit_is_reported_in_a_line(
    needed: int, memory: float | None, environ: dict[str, str], said: str | None, machine: Machine
) -> None:
    machine(*TWO)
    assert check_allocation(needed, memory, environ) == said


def test_where_nothing_can_look_at_gpus_the_environments_number_has_to_do() -> None:
    given = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert check_allocation(2, 80, given) is None
    assert check_allocation(4, 80, given) == "the model needs 4 GPUs of 80 GB, this worker has 2"
    assert check_allocation(1, 80, {}) == "the model needs 1 GPU of 80 GB, this worker has none"


def test_looking_for_gpus_leaves_the_environment_alone(machine: Machine) -> None:
    before = dict(os.environ)
    machine(*TWO)
    gpus(), handles()
    assert dict(os.environ) == before


def test_gpus_are_dealt_out_to_workers_with_the_cpus_near_them(machine: Machine) -> None:
    near = [0b0011, 0b0011, 0b1100]
    machine(*(FakeGpu(f"GPU-{place}", cpus=mask) for place, mask in enumerate(near)))
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert parts(3, 1, {}) == [
        ({**order, "CUDA_VISIBLE_DEVICES": "0"}, {0, 1}),
        ({**order, "CUDA_VISIBLE_DEVICES": "1"}, {0, 1}),
        ({**order, "CUDA_VISIBLE_DEVICES": "2"}, {2, 3}),
    ]
    (first, cpus), (second, _) = parts(2, 2, {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2,GPU-0"})
    assert (first["CUDA_VISIBLE_DEVICES"], cpus) == ("GPU-1,GPU-2", {0, 1, 2, 3})
    assert second["CUDA_VISIBLE_DEVICES"] == "GPU-0", "the worker reports that it has too few"
    slurms = {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "4,6"}
    assert [one["SLURM_JOB_GPUS"] for one, _ in parts(2, 1, slurms)] == ["4", "6"]
    amd = parts(2, 1, {"ROCR_VISIBLE_DEVICES": "0,1"})
    assert [one["ROCR_VISIBLE_DEVICES"] for one, _ in amd] == ["0", "1"]
    assert parts(2, 0, {}) == [({}, frozenset()), ({}, frozenset())]
    shared = parts(3, 1, {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, sharing=2)
    assert [one["CUDA_VISIBLE_DEVICES"] for one, _ in shared] == ["GPU-1", "GPU-1", "GPU-2"]


def test_workers_on_one_gpu_cut_by_mig_get_an_instance_each(machine: Machine) -> None:
    machine(FakeGpu("GPU-a", mig=[FakeGpu(f"MIG-{letter}") for letter in "xy"]))
    assert [one["CUDA_VISIBLE_DEVICES"] for one, _ in parts(2, 1, {})] == ["MIG-x", "MIG-y"]
