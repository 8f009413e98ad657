"""A model over several nodes, before it runs: its shape, its job, its command lines, and who is to blame."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from typing import Any

import pytest

from hpcbench.engines.sglang import SglangEngine
from hpcbench.engines.vllm import VllmEngine
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import EngineSpec, Rank, Split, with_share
from hpcbench.registry.resource_shapes import spread
from hpcbench.resume.last_job import DEFAULT
from hpcbench.schema.model import Model
from hpcbench.schema.site import SlurmSite
from hpcbench.slurm.gpu_request import gpu_options
from hpcbench.worker import rendezvous
from hpcbench.worker.ranks import RankFailure, guilty, nodes_of_job


def model(**fields: Any) -> Model:
    return Model(name="big", source="/weights", engine="vllm", **fields)


@pytest.mark.parametrize(
    ("fields", "most", "nodes", "gpus", "split"),
    [
        ({"parallel": {"tensor": 8, "pipeline": 2}}, 8, 2, 8, (8, 2)),
        ({"parallel": {"tensor": 8, "pipeline": 2}}, 4, 4, 4, (8, 2)),
        ({"parallel": {"tensor": 8, "pipeline": 2}}, None, 1, 16, (8, 2)),
        ({"parallel": {"tensor": 6}}, 4, 2, 3, (6, 1)),
        ({"parallel": {"tensor": 8}, "gpus": 4}, 8, 2, 4, (8, 1)),
        ({"parallel": {"tensor": 8}, "nodes": 4}, 8, 4, 2, (8, 1)),
        ({"parallel": {"tensor": 2}, "nodes": 2, "gpus": 0}, None, 2, 0, (2, 1)),
        ({"nodes": 2, "gpus": 8}, 8, 2, 8, (8, 2)),
        ({"nodes": 2, "gpus": 8, "engine_options": {"tensor_parallel_size": 16}}, 8, 2, 8, (16, 1)),
    ],
)
def test_nodes_follow_from_the_split_and_the_gpus_of_a_node(
    fields: dict[str, Any], most: int | None, nodes: int, gpus: int, split: tuple[int, int]
) -> None:
    given = model(**fields)
    found = spread(given, given.gpus, most)
    assert (found.nodes, found.gpus) == (nodes, gpus)
    assert found.parallel is not None
    assert (found.parallel.tensor, found.parallel.pipeline) == split
    assert spread(found, found.gpus, most) == found


def test_a_model_of_one_node_stays_as_it_is() -> None:
    assert spread(model(gpus=4), 4, 8) == model(gpus=4)


@pytest.mark.parametrize(
    ("option", "asked"),
    [
        ("gres", {"gres": "gpu:8"}),
        ("gpus", {"gpus": "16"}),
        ("gpus-per-node", {"gpus_per_node": "8"}),
    ],
)
def test_a_job_of_two_nodes_asks_for_the_gpus_of_each(option: Any, asked: dict[str, str]) -> None:
    assert gpu_options(SlurmSite(gpu_option=option), DEFAULT, 8, 2) == asked


def command(engine: Any, number: int | None) -> str:
    rank = None
    if number is not None:
        rank = Rank(number, 2, "10.0.0.1", 21008, f"10.0.0.{number + 1}", "ib0")
    spec = EngineSpec(
        "/no/weights", "big", "/run/s", gpus=8, parallel=Split(tensor=8, pipeline=2), rank=rank
    )
    found = engine().launch_command(spec)
    return shlex.join([*(f"{key}={value}" for key, value in found.env.items()), *found.argv])


def test_vllm_gets_its_place_and_only_the_first_rank_serves() -> None:
    first, further = command(VllmEngine, 0), command(VllmEngine, 1)
    for line in (first, further):
        assert "--tensor-parallel-size 8 --pipeline-parallel-size 2" in line
        assert "--nnodes 2" in line
        assert "--master-addr 10.0.0.1 --master-port 21008" in line
        assert "--distributed-executor-backend mp" in line
        assert "NCCL_SOCKET_IFNAME=ib0" in line
    assert "--node-rank 0" in first and "--uds /run/s" in first and "--headless" not in first
    assert "--node-rank 1" in further and "--headless" in further and "--uds" not in further
    assert "VLLM_HOST_IP=10.0.0.2" in further
    assert "--nnodes" not in command(VllmEngine, None)


def test_sglang_gets_its_place() -> None:
    line = command(SglangEngine, 1)
    assert "--tp-size 8 --pp-size 2" in line
    assert "--nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:21008" in line


def failure(rank: int, cause: str = "unknown", **more: Any) -> RankFailure:
    kind, message = more.pop("kind", "engine_exited"), more.pop("message", "ended")
    return RankFailure(rank, f"n{rank}", kind, message, cause, **more)


@pytest.mark.parametrize(
    ("reported", "rank"),
    [
        ([failure(0), failure(1, signal="SIGKILL")], 1),
        ([failure(0, "cuda_error"), failure(2, "gpu_out_of_memory"), failure(1)], 2),
        ([failure(1), failure(0)], 1),
        ([failure(0, "stalled"), failure(3, kind="silent")], 3),
        ([failure(0), failure(1, kind="engine_error"), failure(2, kind="left")], 1),
        ([failure(0), failure(1, message="RuntimeError: Connection closed by peer")], 0),
        ([failure(0, message="KeyError: 7"), failure(1, message="AssertionError")], 1),
        ([failure(0, message="KeyError: 7"), failure(1, "cuda_error")], 0),
        ([failure(1, "cuda_error"), failure(0, "network")], 1),
    ],
)
def test_the_rank_with_a_cause_of_its_own_is_to_blame(
    reported: list[RankFailure], rank: int
) -> None:
    assert guilty(reported).rank == rank


def test_nodes_come_in_slurms_order() -> None:
    assert nodes_of_job({"SLURM_JOB_NODELIST": "gpu[03-04],big1"}) == ["gpu03", "gpu04", "big1"]


def test_two_workers_of_a_node_never_choose_the_same_port(tmp_path: Path) -> None:
    low, high = rendezvous._ephemeral()
    with rendezvous.held_port("127.0.0.1", str(tmp_path)) as one:
        with rendezvous.held_port("127.0.0.1", str(tmp_path)) as other:
            assert abs(one - other) >= rendezvous.ROW
        assert not low <= one <= high
        with socket.socket() as engine:
            engine.bind(("127.0.0.1", one))
    assert not list(tmp_path.iterdir())


def test_a_taken_or_locked_row_of_ports_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as foreign:
        foreign.bind(("", 0))
        foreign.listen()
        taken = foreign.getsockname()[1]
        monkeypatch.setattr(rendezvous, "_candidates", lambda low, high: [taken])
        with (
            pytest.raises(EnvironmentFault, match="no free TCP port"),
            rendezvous.held_port("127.0.0.1", str(tmp_path)),
        ):
            pass


def test_an_interface_that_is_missing_is_named_with_those_that_exist() -> None:
    assert rendezvous.own_address("lo", "") == "127.0.0.1"
    with pytest.raises(EnvironmentFault, match="'ib7' has no IPv4 address.*one of: .*lo"):
        rendezvous.own_address("ib7", "")


def test_an_engine_gets_its_share_of_a_gpu_by_its_own_option() -> None:
    options = {"max_num_seqs": 8}
    assert with_share(VllmEngine, options, None) == options
    assert with_share(VllmEngine, options, 0.45) == {**options, "gpu_memory_utilization": 0.45}
    with pytest.raises(UserError, match="no option for a share"):
        with_share(SglangEngine, options, 0.45)
