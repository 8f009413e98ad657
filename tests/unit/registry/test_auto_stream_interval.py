"""`stream_interval: auto` of vLLM and SGLang: as many tokens a chunk as the client keeps up with."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.experiment.view.performance_json import Speed
from hpcbench.registry.auto_stream_interval import LATENESS_MS, number, with_number
from hpcbench.reporting.printed_tables import _tpot
from hpcbench.schema.model import Model
from tests.unit.registries import PLAN, Files

MODEL = "name: org/tiny\nsource: ../../weights\nengine: {engine}\nengine_options: {options}\n"


@pytest.mark.parametrize(
    ("in_flight", "tokens"),
    [(1, 1), (4, 1), (33, 1), (34, 2), (64, 2), (100, 3), (256, 8), (1024, 31)],
)
def test_a_step_of_the_engine_never_keeps_the_client_longer_than_a_millisecond(
    in_flight: int, tokens: int
) -> None:
    assert number(in_flight) == tokens
    assert in_flight * 0.03 / tokens <= LATENESS_MS + 1e-9
    assert tokens == 1 or in_flight * 0.03 / (tokens - 1) > LATENESS_MS


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("name", ["stream_interval", "stream-interval"])
def test_the_resolved_plan_has_the_number_in_place_of_auto(
    tmp_path: Path, engine: str, name: str
) -> None:
    files = Files(tmp_path)
    options = f"{{{name}: auto, seed: 3}}"
    files.write("models/org/tiny.yaml", MODEL.format(engine=engine, options=options))
    (quiet,) = files.resolved(PLAN + "    concurrency: 8\n").run_tasks
    assert quiet.model.engine_options == {"seed": 3}
    (busy,) = files.resolved(PLAN + "    concurrency: 256\n").run_tasks
    assert busy.model.engine_options == {name: 8, "seed": 3}


def test_all_points_of_a_sweep_have_the_number_of_the_greatest_load(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write(
        "models/org/tiny.yaml", MODEL.format(engine="vllm", options="{stream_interval: auto}")
    )
    points = files.resolved(PLAN + "    load: {concurrency: [1, 64, 256]}\n").run_tasks
    assert len(points) == 3
    assert {one.model.engine_options["stream_interval"] for one in points} == {8}


@pytest.mark.parametrize("options", [{}, {"stream_interval": 4}, {"stream_interval": "always"}])
def test_other_values_stay_as_they_are(options: dict[str, int | str]) -> None:
    model = Model(name="m", source="hf://o/m", engine="vllm", engine_options=options)
    assert with_number(model, 256) is model


def test_tpot_says_over_how_many_tokens_each_chunk_is() -> None:
    latency = {"n": 100, "p50": {"value": 12.1}, "p95": {"value": 14.0}}
    several = Speed.model_validate({"tpot_ms": latency, "tokens_per_chunk": 7.96})
    assert _tpot(several) == "12.1 / 14.0 (8.0 tokens a chunk)"
    for each in (None, 1, 1.004):
        assert _tpot(several.model_copy(update={"tokens_per_chunk": each})) == "12.1 / 14.0"
