"""Engines that die, hang, leak, or never load: who is blamed, what is tried again, and what is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.campaign import first
from tests.faults.conftest import Bench, Trial, kill, question, until, whole

pytestmark = pytest.mark.engine


def all_but(trial: Trial, calm: Trial, guilty: set[int]) -> None:
    """All answers but those of the guilty are as they would have been; those are `failed` and say why."""
    names = {f"numbers/s{number:03d}" for number in guilty}
    final, undisturbed = trial.answers(), calm.answers()
    assert {name for name, answer in final.items() if answer.startswith("failed")} == names
    assert {key: value for key, value in final.items() if key not in names} == {
        key: value for key, value in undisturbed.items() if key not in names
    }
    table = json.loads(trial.metrics)["run_tasks"]["numbers"]
    assert table["outcomes"] == {"failed": len(guilty), "ok": 40 - len(guilty)}


def causes(status: Any) -> str:
    """All that status tells of what went wrong."""
    return "\n".join(one["cause"] for one in status["failures"] + status["alarms"])


@pytest.mark.parametrize(
    ("guilty", "concurrency", "warm_up", "route"),
    first(1, [
        ({3, 17, 30}, 8, 1, "proxied"), ({3, 17, 30}, 8, 1, "direct"), ({0, 1}, 1, 0, "direct"),
        ({17}, 1, 0, "proxied"), ({17}, 8, 0, "direct"), ({0}, 1, 1, "proxied"),
        ({17, 18, 19}, 1, 0, "direct"),
    ]),
    ids=str,
)  # fmt: skip
def test_poisonous_samples_are_found_guilty_and_everything_else_is_answered(
    bench: Bench, calm: Trial, guilty: set[int], concurrency: int, warm_up: int, route: str
) -> None:
    bench.script(answer_ms=[1, 3], poison=[question(one) for one in guilty])
    task = {"concurrency": concurrency, "warm_up": warm_up, "route": route}
    trial = bench.submit(bench.plan(task))

    status = trial.wait("done")
    assert {event["route"] for event in trial.said("route")} == {route}

    all_but(trial, calm, guilty)
    assert "ended the engine twice, the second time alone" in causes(status)
    screen = trial.screen()
    assert "ended the engine twice" in screen
    assert "poisoned by question" in screen


@pytest.mark.campaign  # the test below bounds the starts of an engine that dies of every sample
def test_an_engine_that_dies_of_many_samples_is_given_up_within_bounds(
    bench: Bench, calm: Trial
) -> None:
    guilty = set(range(8, 24))
    bench.script(answer_ms=[1, 3], poison=[question(one) for one in guilty])
    trial = bench.submit(bench.plan({}, max_resubmits=1))

    status = trial.wait("incomplete", "failed", "done")

    answers, undisturbed = trial.answers(), calm.answers()
    for name, answer in answers.items():
        assert answer == undisturbed[name] or int(name[-3:]) in guilty
    assert all(f"numbers/s{number:03d}" in answers for number in range(40) if number not in guilty)
    assert "poisoned by" in causes(status)
    assert len(list(bench.script_file.parent.glob("starts.*"))) <= 60


def test_an_engine_that_dies_at_every_request_condemns_no_sample(bench: Bench, calm: Trial) -> None:
    bench.script(die_every=1)
    trial = bench.submit(bench.plan({}, max_resubmits=1))

    status = trial.wait("failed")

    assert trial.answers() == {}, "samples were blamed for what the engine does"
    assert trial.rounds <= 2
    assert len(list(bench.script_file.parent.glob("starts.*"))) <= 8
    assert "scripted to end" in causes(status)
    assert "scripted to end" in trial.screen()
    bench.script()
    trial.resume()
    trial.wait("done")
    whole(trial, calm)


@pytest.mark.campaign  # a variant of the engines above
def test_two_samples_that_end_it_only_together_are_both_answered(bench: Bench, calm: Trial) -> None:
    # So long that a busy worker sends the second one before the first is answered.
    bench.script(answer_ms=[2000, 2000], pair=[question(10), question(12)])
    trial = bench.submit(bench.plan({"concurrency": 8}))

    status = trial.wait("done")

    whole(trial, calm)
    assert trial.said("engine_died")
    assert trial.said("poisonous") == []
    assert "those two together" in causes(status)


def test_an_engine_that_hangs_on_a_sample_is_ended_and_the_rest_goes_on(
    bench: Bench, calm: Trial, route: str
) -> None:
    bench.script(answer_ms=[1, 3], hang=[question(9)])
    bench.model("scripted", stall_timeout=5)
    trial = bench.submit(bench.plan({}))

    status = trial.wait("done")
    assert {event["route"] for event in trial.said("route")} == {route}

    all_but(trial, calm, {9})
    assert "has sent nothing for" in causes(status)
    assert "has sent nothing for" in trial.screen()
    assert trial.said("engine_died")[0]["cause"] == "stalled"


OOM = "oom-kill: Out of memory: Killed process 1 (engine)"


def test_memory_that_runs_out_is_cured_by_a_larger_shape(bench: Bench, calm: Trial) -> None:
    bench.script(answer_ms=[1, 3], die_every=6, deaths=2, last_words=OOM)
    bench.model("scripted", larger=[{"memory_gb": 2}])
    trial = bench.submit(bench.plan({}))

    status = trial.wait("done")

    whole(trial, calm)
    assert "Out of memory" in causes(status)
    groups = [line["groups"][0] for line in _rounds(trial)]
    assert [(one["id"], one["resources"]["memory_gb"]) for one in groups] == [
        ("g0", 1),
        ("g0L1", 2),
    ]


def test_memory_that_runs_out_without_a_larger_shape_ends_incomplete_and_says_so(
    bench: Bench, calm: Trial
) -> None:
    bench.script(answer_ms=[1, 3], die_every=6, deaths=-1, last_words=OOM)
    trial = bench.submit(bench.plan({}))

    status = trial.wait("incomplete")

    assert trial.rounds == 1, "what lacks memory is not tried again in the same shape"
    final, undisturbed = trial.answers(), calm.answers()
    assert 0 < len(final) < 40
    assert final.items() <= undisturbed.items()
    assert "Out of memory" in causes(status)
    assert "Out of memory" in trial.screen()


@pytest.mark.campaign  # a variant of the engines above
def test_an_engine_that_lacked_memory_once_and_went_on_is_not_given_up_later(
    bench: Bench, calm: Trial
) -> None:
    bench.script(answer_ms=[60, 120], die_every=6, deaths=1, last_words=OOM)
    trial = bench.submit(bench.plan({}))
    until(lambda: trial.said("engine_died") and trial.answered() > 8, "an answer after its death")
    for pid in trial.workers():
        kill(pid)

    trial.wait("done")

    whole(trial, calm)
    assert trial.rounds == 2


def test_an_engine_that_never_loads_is_tried_once_and_again_by_resume(
    bench: Bench, calm: Trial
) -> None:
    bench.script(fail_loads=-1)
    trial = bench.submit(bench.plan({}))

    status = trial.wait("failed")

    assert trial.rounds == 1
    assert len(list(bench.script_file.parent.glob("starts.*"))) == 1
    assert "the scripted engine does not load" in causes(status)
    screen = trial.screen()
    assert "the scripted engine does not load" in screen
    assert ".log" in screen
    bench.script(load_ms=1500)
    trial.resume()
    trial.wait("done")
    whole(trial, calm)


def test_a_worker_that_loads_nothing_takes_its_node_for_bad_and_ends(bench: Bench) -> None:
    names = ["one", "two", "three", "four"]
    for name in names:
        bench.model(name)
    bench.script(unloadable=names[:3])
    tasks = [{"name": name, "model": name, "limit": 8} for name in names]
    trial = bench.submit(bench.plan(*tasks))

    status = trial.wait("incomplete")

    assert "3 loads in a row failed on" in causes(status)
    assert "3 loads in a row failed on" in trial.screen()
    assert trial.rounds == 2, "what may load elsewhere is tried once more"
    assert set(trial.answers()) == {f"four/s{number:03d}" for number in range(8)}
    assert len(list(bench.script_file.parent.glob("starts.*"))) == 4


@pytest.mark.campaign  # a variant of the engines above
def test_an_engine_that_crashes_now_and_then_is_given_up_by_each_worker_but_all_is_answered(
    bench: Bench, calm: Trial
) -> None:
    bench.script(answer_ms=[1, 3], die_every=12, deaths=-1)
    trial = bench.submit(bench.plan({}))

    status = trial.wait("done")

    whole(trial, calm)
    assert "the engine died 2 times" in causes(status)
    assert trial.rounds > 1


@pytest.mark.campaign  # a variant of the engines above
def test_slow_loads_and_slow_answers_are_waited_for(bench: Bench, calm: Trial) -> None:
    bench.script(load_ms=2500, answer_ms=[20, 50])
    trial = bench.submit(bench.plan({}, parallelism=2))

    status = trial.wait("done")

    whole(trial, calm)
    assert status["failures"] == []
    assert trial.twice() == []


def _rounds(trial: Trial) -> list[Any]:
    lines = (trial.path / "submission.jsonl").read_text().splitlines()
    return [one for one in map(json.loads, lines) if one["event"] == "round"]
