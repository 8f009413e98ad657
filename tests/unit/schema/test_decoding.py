"""A plan's work is read from JSON as it was written; else the place of the mistake is named."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from hpcbench.schema.decoding import decoded
from hpcbench.schema.work import Cut, Fewer, Group, JobResources, WorkPlan

NEED = JobResources(cpus=2, memory_gb=8.0, time_limit="02:00:00", partition="gpu")
GROUP = Group(
    id="g0", image=None, gpus=1, resources=NEED, run_tasks=("a", "b"), workers=4, throttle=2
)
WORK = WorkPlan(
    groups=(GROUP,),
    cuts=(Cut(run_task="a", samples=10, size=4), Cut(run_task="b", samples=3, size=3, pilot=1)),
    load_seconds={"m": 120.0},
    fewer=(Fewer("m", 1, 4, 10, 8, 20.0, 120.0, known=False),),
)


def stored() -> Any:
    return json.loads(json.dumps(asdict(WORK)))


def test_what_was_written_is_read_back() -> None:
    assert decoded(WorkPlan, stored()) == WORK


def test_members_that_earlier_versions_did_not_write_have_their_defaults() -> None:
    data = stored()
    del data["fewer"], data["groups"][0]["sharing"], data["cuts"][0]["pilot"]
    found = decoded(WorkPlan, data)
    assert (found.fewer, found.groups[0].sharing, found.cuts[0].pilot) == ((), 1, 0)


def test_a_whole_number_may_stand_for_a_float_and_becomes_one() -> None:
    data = stored()
    data["groups"][0]["resources"]["memory_gb"] = 8
    assert json.dumps(asdict(decoded(WorkPlan, data))) == json.dumps(asdict(WORK))


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        (lambda data: data.pop("cuts"), "cuts: it is missing"),
        (lambda data: data.update(rooms=1), "rooms: it is unknown"),
        (lambda data: data.update(groups=1), "groups: not of its type: 1"),
        (lambda data: data["cuts"][1].update(size="3"), "cuts.1.size: not of its type: '3'"),
        (lambda data: data["cuts"][1].update(size=True), "cuts.1.size: not of its type: True"),
        (lambda data: data["load_seconds"].update(m=None), "load_seconds.m: not of its type: None"),
        (
            lambda data: data["groups"][0].update(resources=None),
            "groups.0.resources: not of its type",
        ),
        (
            lambda data: data["groups"][0]["resources"].pop("cpus"),
            "groups.0.resources.cpus: it is mis",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(change: Any, mistake: str) -> None:
    data = stored()
    change(data)
    with pytest.raises(ValueError, match=f"^{mistake}"):
        decoded(WorkPlan, data)


@pytest.mark.parametrize("data", [None, [], "text", 7])
def test_what_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="^it: not of its type"):
        decoded(WorkPlan, data)
