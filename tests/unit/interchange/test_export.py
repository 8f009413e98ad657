"""`hpcbench export --compat`: one experiment in the words of other kits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt
from tests.unit.timing import answered


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Three answers of 5 chunks, 100 ms to the first and 20 ms between them."""
    here = experiment(tmp_path, [record(number) for number in range(4)], slo={"e2e_ms": 170})
    times = [(0.0, 100.0, 180.0), (200.0, 300.0, 380.0), (400.0, 500.0, 560.0)]
    answers = [answered(number, *one) for number, one in enumerate(times)]
    write_attempt(here, 0, 1, [*answers, response("s3", None)])
    return str(here.path)


def test_each_figure_has_its_value_and_what_it_means_there(cli: Cli, path: str) -> None:
    reported = cli.json("export", path, "--compat", "vllm", "--json")
    part = reported["run_tasks"]["rt"]["figures"]
    assert reported["compat"] == "vllm"
    assert part["mean_ttft_ms"]["value"] == 100
    assert "first chunk with choices" in part["mean_ttft_ms"]["definition"]
    assert part["completed"]["value"] == 3


def test_the_limits_of_the_plan_are_those_of_the_kits_goodput(cli: Cli, path: str) -> None:
    part = cli.json("export", path, "--compat", "vllm", "--json")["run_tasks"]["rt"]["figures"]
    # one of three keeps 170 ms, in 560 ms from the first send to the last end
    assert part["request_goodput"]["value"] == pytest.approx(1 / 0.56)


def test_a_person_gets_a_table(cli: Cli, path: str) -> None:
    assert "rt" in cli("export", path, "--compat", "guidellm")


def test_shards_of_several_workers_make_one_table(cli: Cli, tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(8)])
    write_attempt(here, 0, 1, [answered(0, 0.0, 100.0, 180.0), answered(1, 200.0, 300.0, 380.0)])
    # Another node, whose clock shows something else; its requests are slower.
    later = [answered(4, 9e6, 9e6 + 400, 9e6 + 500), answered(5, 9e6, 9e6 + 300, 9e6 + 400)]
    write_attempt(here, 1, 1, later)
    reported = cli.json("export", here.path, "--compat", "vllm", "--json")["run_tasks"]["rt"]
    figures = {name: one["value"] for name, one in reported["figures"].items()}
    assert reported["pieces"] == 2
    assert figures["completed"] == 4
    assert figures["duration"] == pytest.approx(0.38 + 0.5)
    assert figures["request_throughput"] == pytest.approx(4 / 0.88)
    assert figures["mean_ttft_ms"] == pytest.approx((100 + 100 + 400 + 300) / 4)
    assert figures["p99_ttft_ms"] == pytest.approx(397)
    out = cli("export", here.path, "--compat", "vllm")
    assert out.count("request_throughput") == 1
    assert "2 shards joined end to end: the rates are those of one engine" in out


def test_phoenix_needs_its_address(cli: Cli, path: str) -> None:
    assert "--to phoenix needs the address of Phoenix" in cli.err("export", path, "--to", "phoenix")
