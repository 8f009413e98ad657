"""Advice says what it knows, with figures, and nothing else."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.portal.advice import Took, advice
from hpcbench.schema.shared_types import Resources, seconds

POSITIVE = st.floats(min_value=0.01, max_value=1e6)
MAYBE = st.none() | POSITIVE
TOOK = st.builds(
    Took,
    memory_asked_gb=MAYBE, memory_peak_gb=MAYBE, gpus=st.integers(0, 8), card_gb=MAYBE, needed_gb=MAYBE,
    gpu_use=st.none() | st.floats(0, 100), client_bound=st.booleans(),
    concurrency=st.none() | st.integers(1, 512), time_limit=MAYBE, longest=MAYBE,
    cpus_asked=st.none() | st.integers(1, 256), cpus_peak=MAYBE, cpus_mean=MAYBE, shard_seconds=MAYBE,
    shard_samples=st.none() | st.integers(1, 10_000), shards=st.integers(0, 10_000), held=MAYBE,
    loading=MAYBE, workers=st.integers(0, 100), requests=st.none() | st.integers(0, 10**6),
    tries=st.none() | st.integers(0, 10**6),
)  # fmt: skip


def texts(**took: Any) -> list[str]:
    return [one.text for one in advice(Took(**took))]


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert advice(Took()) == ()


@given(TOOK)
def test_whatever_is_known_advice_is_sentences_with_figures_and_warnings_come_first(
    took: Took,
) -> None:
    found = advice(took)
    assert all(re.search(r"\d", one.text) and one.text.endswith(".") for one in found)
    levels = [one.level for one in found]
    assert levels == sorted(levels, key=lambda level: level != "warning")


@given(TOOK, st.sampled_from([field.name for field in dataclasses.fields(Took)]))
def test_to_forget_a_figure_never_makes_advice_of_another_kind(took: Took, name: str) -> None:
    less = dataclasses.replace(took, **{name: getattr(Took(), name)})
    rules = {kind(one.text) for one in advice(took)}
    new = {kind(one.text) for one in advice(less)} - rules
    # A peak or mean that is not known leaves the other rule of CPUs; all else is said less.
    assert new <= {"cpus", "gpu"}


def kind(text: str) -> str:
    words = {
        "host memory": "memory", "GPU memory": "card", "GPUs were": "gpu", "time limit": "time",
        "CPUs": "cpus", "shard": "shards", "loads of": "loading", "repeated": "retries",
    }  # fmt: skip
    return next(name for word, name in words.items() if word in text)


@given(TOOK)
def test_a_change_of_resources_is_one_that_a_definition_can_hold(took: Took) -> None:
    for one in advice(took):
        if match := re.fullmatch(r"resources: \{(\w+): (.+)\}", one.change):
            value = match[2].strip('"')
            Resources.model_validate({match[1]: value if ":" in value else float(value)})


@given(POSITIVE, POSITIVE)
def test_the_memory_proposed_holds_the_peak(asked: float, peak: float) -> None:
    for one in advice(Took(memory_asked_gb=asked, memory_peak_gb=peak)):
        match = re.search(r"memory_gb: (\d+)", one.change)
        assert match is not None
        assert int(match[1]) > peak


@given(POSITIVE, POSITIVE)
def test_the_time_proposed_holds_the_longest_worker(limit: float, longest: float) -> None:
    for one in advice(Took(time_limit=limit, longest=longest)):
        match = re.search(r'time_limit: "(.+)"', one.change)
        assert match is not None
        assert seconds(match[1]) >= longest


def test_too_much_memory_is_said_with_what_would_do() -> None:
    (one,) = advice(Took(memory_asked_gb=64, memory_peak_gb=9))
    assert (one.level, one.text) == (
        "note", "The job requested 64 GiB of host memory; the peak was 9.0 GiB.",
    )  # fmt: skip
    assert one.change == "resources: {memory_gb: 13}"


@pytest.mark.parametrize(
    ("took", "said"),
    [
        ({"memory_asked_gb": 16, "memory_peak_gb": 15.5}, "request more"),
        ({"gpus": 1, "card_gb": 80, "needed_gb": 38, "concurrency": 8},
         "a higher concurrency fits"),
        ({"gpus": 1, "card_gb": 80, "needed_gb": 20}, "a GPU with half the memory is enough"),
        ({"gpus": 2, "gpu_use": 21.0, "concurrency": 4},
         "at a concurrency of 4: use a higher concurrency"),
        ({"gpus": 2, "gpu_use": 21.0, "client_bound": True}, "the client was too slow"),
        ({"time_limit": 43200.0, "longest": 2400.0}, "jobs with a shorter time limit start sooner"),
        ({"time_limit": 7200.0, "longest": 7000.0}, "of its time limit"),
        ({"cpus_asked": 32, "cpus_peak": 5.0}, "at most 5.0 were busy"),
        ({"cpus_asked": 4, "cpus_mean": 3.95}, "may be the bottleneck"),
        ({"shard_seconds": 2.0, "shards": 50, "shard_samples": 10}, "larger shards"),
        ({"shard_seconds": 5000.0, "time_limit": 7200.0}, "more than half of the time limit"),
        ({"held": 1000.0, "loading": 600.0, "workers": 8}, "8 loads of the model"),
        ({"requests": 100, "tries": 140}, "40 requests were repeated"),
    ],
)  # fmt: skip
def test_each_rule_says_what_it_saw(took: dict[str, Any], said: str) -> None:
    (text,) = texts(**took)
    assert said in text


@pytest.mark.parametrize(
    "took",
    [
        {"memory_asked_gb": 16, "memory_peak_gb": 12},
        {"memory_asked_gb": 4, "memory_peak_gb": 1},  # too little to be worth a word
        {"gpus": 0, "card_gb": 80, "needed_gb": 10},
        {"gpus": 1, "gpu_use": 80.0},
        {"time_limit": 1800.0, "longest": 60.0},
        {"cpus_asked": 2, "cpus_peak": 0.5},
        {"shard_seconds": 2.0, "shards": 5},
        {"held": 1000.0, "loading": 100.0, "workers": 8},
        {"held": 1000.0, "loading": 900.0, "workers": 1},
        {"requests": 100, "tries": 103},
    ],
)
def test_what_is_well_or_little_is_not_mentioned(took: dict[str, Any]) -> None:
    assert texts(**took) == []
