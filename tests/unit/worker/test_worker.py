"""Requests of a worker besides its shards: warm-up that takes nothing from what is timed."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hpcbench.data.datasets import open_dataset
from hpcbench.errors import UserError
from hpcbench.experiment.claims import Claim, Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from hpcbench.inference.client import EngineGone
from hpcbench.inference.request_body import read_image
from hpcbench.schema.records import PromptEntry, Request
from hpcbench.worker.process import Worker, _poisonous
from hpcbench.worker.requests import RequestBuilder, between
from tests.unit.small import experiment, record, response, run_task, write_attempt, write_dataset


@given(st.lists(st.integers(0, 60), unique=True, max_size=12).map(sorted), st.integers(60, 80))
def test_what_is_between_ranges_is_all_that_is_not_in_them(edges: list[int], stop: int) -> None:
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    inside = {place for low, high in pairs for place in range(low, high)}
    outside = {place for low, high in between(pairs, stop) for place in range(low, high)}
    assert outside == set(range(stop)) - inside


def warmed(
    folder: Path, chosen: list[tuple[int, int]], count: int, unfit: range = range(0)
) -> list[Request]:
    """Requests of warm-up; no prompt can be built for the `unfit`."""
    records = [record(number) for number in range(20)]
    for number in unfit:
        records[number]["fields"] = {"question": None}
    data = write_dataset(folder, records)
    Image.new("RGB", (8, 8), "red").save(data / "p.png")
    task = run_task(dataset={"source": str(data)})
    return list(RequestBuilder(task, open_dataset(task.dataset), chosen).others(count))


def test_warm_up_asks_samples_that_no_shard_has(tmp_path: Path) -> None:
    asked = warmed(tmp_path, [(0, 16)], 4)
    assert [request.sample_id for request in asked] == ["s16", "s17", "s18", "s19"]


def test_warm_up_is_spread_over_what_there_is(tmp_path: Path) -> None:
    assert [one.sample_id for one in warmed(tmp_path, [(0, 4)], 4)] == ["s4", "s8", "s12", "s16"]


@pytest.mark.parametrize(
    ("unfit", "expected"),
    [(range(8, 9), ["s4", "s12", "s16", "s0"]), (range(4, 20), ["s0", "s1", "s2", "s3"])],
)
def test_samples_without_a_prompt_are_passed_over_where_they_are_not_asked(
    tmp_path: Path, unfit: range, expected: list[str]
) -> None:
    assert [one.sample_id for one in warmed(tmp_path, [(0, 4)], 4, unfit)] == expected


def test_without_others_warm_up_shows_images_that_no_cache_has_seen(tmp_path: Path) -> None:
    asked = warmed(tmp_path, [(0, 20)], 2)
    assert [request.sample_id for request in asked] == ["s0", "s10"]
    page = (tmp_path / "p.png").read_bytes()
    seen = [read_image(request.messages[-1].images[0]) for request in asked]
    assert len({page, *seen}) == 3
    pixels = [Image.open(io.BytesIO(one)).tobytes() for one in (page, *seen)]
    assert pixels[0] == pixels[1] == pixels[2]


def test_a_worker_asks_nothing_of_a_dataset_that_lost_rows(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(4)])
    manifest = read_json(here.manifest_file)
    write_json(here.manifest_file, {**manifest, "measured": {"dataset_samples": {"rt": 5}}})
    here = Experiment(here.path)
    worker = Worker(here, here.work.groups[0], Owner.here())
    with pytest.raises(UserError, match="dataset 'd' has changed since .* 5 samples then, 4 now"):
        asyncio.run(worker._asking(here.run_task("rt")))


def test_a_worker_asks_nothing_of_a_shard_whose_answers_are_of_samples_elsewhere(
    tmp_path: Path,
) -> None:
    here = experiment(tmp_path, [record(number) for number in range(4)])
    write_attempt(here, 0, 1, [response("s0", "0"), response("s3", "3")], end="released")
    claim = Claim(here, here.work.shards[0], 2)
    task = here.run_task("rt")
    asking = RequestBuilder(task, open_dataset(task.dataset), [(0, 4)])
    asking.check(claim)
    (annotations,) = Path(task.dataset.source).glob("*.jsonl")
    lines = annotations.read_text()
    annotations.write_text(lines.splitlines(keepends=True)[0].replace("s0", "new") + lines)
    asking = RequestBuilder(task, open_dataset(task.dataset), [(0, 4)])
    with pytest.raises(UserError, match="sample 's3' has an answer, but is no longer at its place"):
        asking.check(claim)


def test_the_request_that_ended_the_engine_is_reported_with_its_prompt(tmp_path: Path) -> None:
    data = write_dataset(tmp_path, [record(0)])
    entry = PromptEntry("first", "{{ question }}", when={"question": "number 0?"})
    task = run_task(dataset={"source": str(data)}, prompt={"user": None, "prompts": (entry,)})
    (request,) = RequestBuilder(task, open_dataset(task.dataset), [(0, 1)]).others(1)
    reported = _poisonous(request, EngineGone("it is gone", ()))
    assert (reported.sample_id, reported.outcome, reported.prompt) == ("s0", "failed", "p/first")


@pytest.mark.parametrize(("rate", "arrival"), [(None, "poisson"), (4.0, "constant")])
def test_requests_have_a_time_only_under_a_rate(
    tmp_path: Path, rate: float | None, arrival: str
) -> None:
    data = write_dataset(tmp_path, [record(0)])
    task = run_task(dataset={"source": str(data)}, rate=rate, arrival=arrival, concurrency=8)
    times = RequestBuilder(task, open_dataset(task.dataset), [(0, 1)]).arrivals(seed=0)
    assert (None if times is None else [next(times) for _ in range(3)]) == (
        None if rate is None else [0.0, 0.25, 0.5]
    )
