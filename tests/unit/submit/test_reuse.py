"""Answers of earlier experiments: what a key holds, what is asked again, and what a kill or damage leaves."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.data.datasets import open_dataset
from hpcbench.data.tree import content_hash, folder_files
from hpcbench.environments.images import file_digest, note
from hpcbench.errors import RunFailed
from hpcbench.evaluation.performance import measure_performance
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment import answer_index
from hpcbench.experiment.archiving import fold
from hpcbench.experiment.claim_store import ClaimStore
from hpcbench.experiment.claims import (
    Claim,
    Owner,
    answers_of,
    claim,
    damaged,
    pieces_of,
    shard_states,
    unread_pieces,
)
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.reused import Reused, reused_of
from hpcbench.experiment.submission_lock import alone
from hpcbench.experiment.view.attempts import Attempts
from hpcbench.files.atomic import read_json, write_json
from hpcbench.inference.request_body import answer_key, prepare
from hpcbench.planning import answer_basis
from hpcbench.plugins import Environment
from hpcbench.portal.models.experiments import RunTaskRow
from hpcbench.portal.models.samples import AnswerSource
from hpcbench.portal.request_times import requests_of
from hpcbench.portal.results_cache import results_of
from hpcbench.portal.run_task_page import describe
from hpcbench.portal.sample_detail import details_of
from hpcbench.portal.sample_table import sample_table_of
from hpcbench.portal.samples import SampleFilter, SampleOrder
from hpcbench.portal.worker_series import Workers
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.records import Response
from hpcbench.site import gc
from hpcbench.status.forecast import spans
from hpcbench.submit import reuse
from hpcbench.submit.estimate_text import outlook
from hpcbench.submit.preview import preview_of
from hpcbench.submit.reuse import open_groups, take_over_answers, unmeasured, unmeasured_in_words
from hpcbench.submit.reuse_forecast import forecast
from hpcbench.worker.requests import RequestBuilder
from tests.conftest import ROOT
from tests.unit.portal.asking import portal_over
from tests.unit.small import record, resolved, response, run_task, submitted, write_dataset

IMAGE = Environment("apptainer", "/x.sif", "sha256:" + "1" * 64)


def planned(folder: Path, count: int, *tasks: Mapping[str, Any]) -> ResolvedPlan:
    """A plan over samples `s0`, `s1`, …; a run task `rt` unless others are given."""
    data = write_dataset(folder / "data", [record(number) for number in range(count)])
    (data / "p.png").write_bytes(b"a page")
    own = [run_task(**{"dataset": {"source": str(data)}, **one}) for one in tasks or [{}]]
    return resolved(*own, shard_size=4)


def prepared(
    folder: Path, plan: ResolvedPlan, name: str, *, samples: int = 10, policy: str = "greedy"
) -> Experiment:
    """An experiment as `prepare` writes it."""
    here = submitted(folder, plan, samples, f"20261120-1432-{name}")
    bases = {one.name: answer_basis(one, "sha256:m", IMAGE) for one in plan.run_tasks}
    write_json(
        here.manifest_file,
        {**read_json(here.manifest_file), "answer_bases": bases, "reuse": policy},
    )
    here = Experiment(here.path)
    answer_index.announce(here)  # as its own submission does
    return here


def answered(here: Experiment, *, failed: Sequence[str] = (), last: str = "done") -> Experiment:
    """Every sample asked by a worker that sends what workers send."""
    owner = Owner("1_0", 0, "h", 1)
    for task in here.resolved.run_tasks:
        dataset, chosen = open_dataset(task.dataset), here.chosen(task.name)
        asking = RequestBuilder(task, dataset, chosen, basis=here.answer_basis(task.name))
        store = ClaimStore(here, "g0", owner)
        for shard in here.work.shards_of((task.name,)):
            if shard.index in store.claimed(task.name):
                continue
            taken = store.claim(shard, 1)
            assert taken is not None
            for request in asking.left(taken):
                _, images = prepare(task.model.name, request)
                key = answer_key(task.model.name, request, images)
                text = None if request.sample_id in failed else f"{here.id} {request.sample_id}"
                taken.record(response(request.sample_id, text, answer_key=key, prompt="p"))
            taken.acknowledge()
            taken.end(last if shard.index == 0 else "done")
        fold(here, task.name)
    return here


def texts(here: Experiment, name: str = "rt") -> dict[str, str | None]:
    """Sample → its answer."""
    return {sample: one.text for _, own in answers_of(here, name) for sample, one in own.items()}


def asked(here: Experiment, name: str = "rt") -> set[str]:
    """Samples that a worker has to ask."""
    everything = {f"s{number}" for number in range(sum(c.samples for c in here.work.cuts))}
    return everything - set(texts(here, name))


# --- keys ---------------------------------------------------------------------------------------------

CHANGES: list[Mapping[str, Any]] = [
    {"model": {"dtype": "float16"}},
    {"model": {"engine_options": {"max_num_seqs": 2}}},
    {"model": {"engine": "sglang"}},
    {"model": {"gpus": 2}},
    {"model": {"env": {"A": "b"}}},
    {"model": {"chat_template": "{{ messages }}"}},
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_basis_changes_with_all_that_makes_answers(change: Mapping[str, Any]) -> None:
    plain = answer_basis(run_task(), "sha256:m", IMAGE)
    assert plain is not None
    assert answer_basis(run_task(**change), "sha256:m", IMAGE) not in (None, plain)


@pytest.mark.parametrize("change", [{"load_timeout": 5}, {"request_mb": 200}])
def test_a_basis_does_not_change_with_what_makes_no_other_answers(change: dict[str, int]) -> None:
    plain = answer_basis(run_task(), "sha256:m", IMAGE)
    assert answer_basis(run_task(model=change), "sha256:m", IMAGE) == plain


def test_a_basis_changes_with_weights_image_and_packages_of_the_engine() -> None:
    beside = run_task().model_copy(update={"engine_packages": ("extra",)})
    other = Environment("apptainer", "/x.sif", "sha256:" + "2" * 64)
    found = {
        answer_basis(run_task(), "sha256:m", IMAGE),
        answer_basis(run_task(), "sha256:n", IMAGE),
        answer_basis(run_task(), "sha256:m", other),
        answer_basis(beside, "sha256:m", IMAGE, {"extra": "1"}),
        answer_basis(beside, "sha256:m", IMAGE, {"extra": "2"}),
    }
    assert len(found) == 5
    assert None not in found


def test_an_upgrade_of_hpcbench_changes_no_basis_and_one_of_torch_does() -> None:
    def of(**versions: str) -> str | None:
        names = {name.replace("_", "-"): one for name, one in versions.items()}
        digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()
        here = Environment("venv", "/usr/bin/python3", f"sha256:{digest}", versions=names)
        return answer_basis(run_task(), "sha256:m", here)

    before = of(python="3.11", torch="2.7", hpcbench_vlm="0.1")
    assert before is not None
    assert of(python="3.11", torch="2.7", hpcbench_vlm="0.2") == before
    assert of(python="3.11", torch="2.8", hpcbench_vlm="0.1") != before


def test_without_weights_or_digest_there_is_no_basis() -> None:
    assert answer_basis(run_task(), "none", IMAGE) is None
    assert answer_basis(run_task(), "sha256:m", Environment("docker", "x", None)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": {"user": "{{ question }} "}},
        {"prompt": {"user": "{{ question }}", "system": "s"}},
        {"generation": {"max_tokens": 7}},
        {"output_schema": "none", "generation": {"stop": ["\n"]}},
        {"generation": {"extra": {"top_k": 1}}},
    ],
)
def test_one_changed_byte_of_what_is_sent_asks_all(
    tmp_path: Path, change: Mapping[str, Any]
) -> None:
    answered(prepared(tmp_path, planned(tmp_path, 10), "aaaa"))
    second = prepared(tmp_path, planned(tmp_path, 10, change), "bbbb")
    assert take_over_answers(second).count == 0
    assert len(asked(second)) == 10


def test_a_changed_image_asks_all_of_its_samples(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    answered(prepared(tmp_path, plan, "aaaa"))
    (tmp_path / "data/p.png").write_bytes(b"A page")
    assert take_over_answers(prepared(tmp_path, plan, "bbbb")).count == 0


# --- taking over --------------------------------------------------------------------------------------


def test_the_second_submission_asks_nothing_and_starts_no_group(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    first = answered(prepared(tmp_path, plan, "aaaa"))
    answer_index.write_index(first)
    said: list[str] = []
    second = prepared(tmp_path, plan, "bbbb")
    assert take_over_answers(second, said.append).run_tasks == {"rt": {first.id: 10}}
    assert said == [
        f"asks 0 of 10 samples: 10 have an answer under the same key in {first.id} (`--fresh` asks all)"
    ]
    page = (ROOT / "docs/what-to-set.md").read_text(encoding="utf-8")
    form = r"asks N of N samples: N have an answer under the same key in \S+ \(`--fresh` asks all\)"
    form = form.replace("N", r"\d{1,3}(?:,\d{3})*")
    assert re.fullmatch(form, said[0])
    assert re.search(form, " ".join(page.split()))
    named = [
        run_task(metrics=["anls", "ttft_p50", "answer_tokens", "cost"]),
        run_task("priced", metrics=["cost", "energy"], model={"prices": {"input": 1, "output": 1}}),
        run_task("asked", metrics=["ttft_p50"]),
    ]
    lacking = unmeasured(named, {"rt": {first.id: 10}, "priced": {first.id: 1}, "asked": {}})
    assert lacking == {"rt": ("ttft_p50", "cost"), "priced": ("energy",)}
    (line,) = unmeasured_in_words(lacking)
    assert line.startswith("ttft_p50, cost, energy of rt, priced: no value from answers taken")
    assert texts(second) == texts(first)
    assert {state.state for state in shard_states(second, ["rt"])} == {"done"}
    assert open_groups(second) == ()
    assert damaged(second, ["rt"]) == []
    assert [*pieces_of(second, "rt")] == []  # speed does not see them
    speed = {
        included: measure_performance(second, second.run_task("rt"), reused=included)["requests"]
        for included in (False, True)
    }
    assert speed == {False: 0, True: 10}
    clocks = [b"".join(pages) for pages in unread_pieces(second, "rt", reused=True)]
    assert [one.count(b"\n") for one in clocks] == [4, 4, 2]


def test_answers_carry_their_times_and_where_they_come_from(tmp_path: Path) -> None:
    plan = planned(tmp_path, 2)
    first = answered(prepared(tmp_path, plan, "aaaa", samples=2))
    second = prepared(tmp_path, plan, "bbbb", samples=2)
    take_over_answers(second)
    third = prepared(tmp_path, plan, "cccc", samples=2)
    take_over_answers(third)
    ((_, before),) = answers_of(first, "rt")
    for here in (second, third):  # a copy of a copy names who asked
        ((_, after),) = answers_of(here, "rt")
        source = {"experiment": first.id, "run_task": "rt", "sample": "s0", "piece": "00000.1"}
        assert after["s0"].reused_from == source
        assert after["s0"].times == before["s0"].times
        assert Response.from_json(after["s0"].to_json()) == after["s0"]


def test_the_portal_marks_taken_answers_and_names_who_asked(tmp_path: Path) -> None:
    plan = planned(tmp_path, 2)
    first = answered(prepared(tmp_path, plan, "aaaa", samples=2))
    second = prepared(tmp_path, planned(tmp_path, 3), "bbbb", samples=3)
    take_over_answers(second)
    answered(second)
    evaluate(second)
    portal = portal_over(tmp_path)

    def page() -> Any:
        table = sample_table_of(portal, second.id, "rt")
        return details_of(table, [0, 1, 2], SampleFilter(), SampleOrder())

    marks = [one.taken_from for one in page()]
    whence = AnswerSource(experiment=first.id, run_task="rt", sample="s0", here=True)
    assert marks == [whence, whence.model_copy(update={"sample": "s1"}), None]
    here = results_of(portal).experiment(portal, second.id)
    row = RunTaskRow(
        experiment=second.id, name="rt", ml_task="vqa", model="m", dataset="d", prompt="p",
        state="done", samples=3, answered=3,
    )  # fmt: skip
    detail = describe(here, row, results_of(portal), Workers(here))
    assert [(one.experiment, one.answers, one.here) for one in detail.taken] == [
        (first.id, 2, True)
    ]
    assert len(requests_of(here, "rt")[0]) == 1, "its times are of another clock"
    shutil.rmtree(first.path)
    assert [one.taken_from.here for one in page() if one.taken_from is not None] == [False, False]


def test_a_grown_dataset_asks_only_what_is_new(tmp_path: Path) -> None:
    first = answered(prepared(tmp_path, planned(tmp_path, 10), "aaaa"))
    second = prepared(tmp_path, planned(tmp_path, 13), "bbbb", samples=13)
    assert take_over_answers(second).count == 10
    assert asked(second) == {"s10", "s11", "s12"}
    (group,) = open_groups(second)
    assert group.workers == 1
    answered(second)
    whole = texts(second)
    assert len(whole) == 13
    assert {
        sample: text for sample, text in whole.items() if text in texts(first).values()
    } == texts(first)
    assert {one.sample_id for piece in pieces_of(second, "rt") for one in piece} == {
        "s10",
        "s11",
        "s12",
    }
    # the worker is credited with what it asked
    shards = [one for shard in Attempts(second, "rt").by_shard() for one in shard]
    assert sum(one.answered for one in shards) == 3


def test_rows_in_front_move_no_answer_to_another_sample(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    first = answered(prepared(tmp_path, plan, "aaaa"))
    file = tmp_path / "data/a.jsonl"
    file.write_text(json.dumps(record(77)) + "\n" + file.read_text())
    second = prepared(tmp_path, plan, "bbbb", samples=11)
    take_over_answers(second)
    assert texts(second) == texts(first)


def test_a_model_added_to_a_plan_asks_only_that_model(tmp_path: Path) -> None:
    answered(prepared(tmp_path, planned(tmp_path, 10), "aaaa"))
    other = {"name": "other", "model": {"name": "n", "dtype": "float16"}}
    second = prepared(tmp_path, planned(tmp_path, 10, {}, other), "bbbb")
    assert set(take_over_answers(second).run_tasks) == {"rt"}
    assert [group.run_tasks for group in open_groups(second)] == [("other",)]


def test_failed_samples_are_asked_again(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    answered(prepared(tmp_path, plan, "aaaa"), failed=["s3"])
    second = prepared(tmp_path, plan, "bbbb")
    take_over_answers(second)
    assert asked(second) == {"s3"}


def test_two_run_tasks_of_a_plan_are_never_served_from_one_answer(tmp_path: Path) -> None:
    answered(prepared(tmp_path, planned(tmp_path, 10), "aaaa"))
    twins = planned(tmp_path, 10, {"name": "one"}, {"name": "two"})
    second = prepared(tmp_path, twins, "bbbb")
    assert take_over_answers(second).run_tasks.keys() == {"one"}
    answered(second)
    third = prepared(tmp_path, twins, "cccc")
    assert take_over_answers(third).count == 20
    assert texts(third, "one") != texts(third, "two")
    # copies are no second answers
    fourth = prepared(tmp_path, planned(tmp_path, 10, *({"name": n} for n in "abc")), "dddd")
    assert take_over_answers(fourth).count == 20


@pytest.mark.parametrize(
    ("task", "policy", "count"),
    [
        ({"generation": {"temperature": 0.7}}, "greedy", 0),
        ({"generation": {"temperature": 0.7}}, "sampled", 10),
        ({"generation": {"extra": {"temperature": 1.0}}}, "greedy", 0),
        ({"generation": {"extra": {"do_sample": True}}}, "greedy", 0),
        ({}, "none", 0),
        ({"rate": 2.0}, "sampled", 0),
        ({"measure": "latency"}, "greedy", 0),
        ({"slo": {"e2e_ms": 5}}, "greedy", 0),
    ],
)
def test_who_takes_over_answers(
    tmp_path: Path, task: Mapping[str, Any], policy: str, count: int
) -> None:
    plan = planned(tmp_path, 10, task)
    answered(prepared(tmp_path, plan, "aaaa"))
    assert take_over_answers(prepared(tmp_path, plan, "bbbb", policy=policy)).count == count


def test_a_run_that_has_not_ended_gives_what_it_has(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    answered(prepared(tmp_path, plan, "aaaa"), last="drained")
    second = prepared(tmp_path, plan, "bbbb")
    assert take_over_answers(second).count == 10


# --- kills, damage, two at once -----------------------------------------------------------------------


@pytest.mark.parametrize("moment", range(6))
def test_a_kill_at_any_shard_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    plan = planned(tmp_path, 10, {"name": "one"}, {"name": "two"})
    answered(prepared(tmp_path, plan, "aaaa"))
    second, seen = prepared(tmp_path, plan, "bbbb"), list[int]()
    write = reuse.take_over

    def killed(*arguments: Any) -> None:
        if len(seen) == moment:
            raise KeyboardInterrupt
        seen.append(1)
        write(*arguments)

    monkeypatch.setattr(reuse, "take_over", killed)
    with pytest.raises(KeyboardInterrupt):
        take_over_answers(second)
    monkeypatch.undo()
    second = Experiment(second.path)
    assert reused_of(second) is None
    assert take_over_answers(second).count == 20
    assert len(texts(second, "one")) == len(texts(second, "two")) == 10
    sources = [
        one.reused_from
        for name in ("one", "two")
        for _, own in answers_of(second, name)
        for one in own.values()
    ]
    assert len({(one["run_task"], one["sample"]) for one in sources if one}) == 20


TAKES_OVER = """
import sys
from pathlib import Path
from hpcbench.experiment.layout import Experiment
from hpcbench.submit.reuse import take_over_answers
take_over_answers(Experiment(Path(sys.argv[1])))
"""


@pytest.mark.campaign  # 30 processes; the test above stops at each shard within this one
def test_processes_killed_at_any_moment_leave_each_sample_one_answer(tmp_path: Path) -> None:
    count, chance = 800, random.Random(27)
    plan = planned(tmp_path, count)
    first = answered(prepared(tmp_path, plan, "aaaa", samples=count))
    answer_index.write_index(first)
    second, kills = prepared(tmp_path, plan, "bbbb", samples=count), 0
    folder = second.shards_dir("rt")

    def written() -> int:
        return len([*folder.glob("*.events.jsonl")])

    while reused_of(Experiment(second.path)) is None and kills < 200:
        enough = written() + chance.randrange(1, 15)
        words = [sys.executable, "-c", TAKES_OVER, str(second.path)]
        with subprocess.Popen(words, cwd=ROOT) as process:
            while process.poll() is None and written() < enough:
                time.sleep(0.0005)
            kills += process.poll() is None
            process.kill()
        assert process.returncode in (0, -9)
    second = Experiment(second.path)
    found = [one for _, own in answers_of(second, "rt") for one in own.values()]
    assert kills >= 10, "it was killed at work"
    assert len(found) == count
    assert len({(one.reused_from or {})["sample"] for one in found}) == count
    assert texts(second) == texts(first)


def test_answers_without_their_events_are_no_attempt(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    answered(prepared(tmp_path, plan, "aaaa"))
    second = prepared(tmp_path, plan, "bbbb")
    half = second.shard_responses("rt", 0, 0)
    half.parent.mkdir(parents=True)
    half.write_text('{"sample_id": "s0", "text": "torn')
    assert take_over_answers(second).count == 10
    assert len(texts(second)) == 10


def test_a_damaged_answer_is_asked_again(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    first = answered(prepared(tmp_path, plan, "aaaa"))
    answer_index.write_index(first)
    folded = first.shards_dir("rt") / "folded.jsonl"
    data = folded.read_bytes()
    place = data.index(b'"sample_id":"s5"')
    folded.write_bytes(data[: place + 3] + b"\x00" + data[place + 4 :])
    second = prepared(tmp_path, plan, "bbbb")
    take_over_answers(second)
    assert asked(second) == {"s5"}


def test_a_damaged_copy_is_asked_again_by_resume(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    answered(prepared(tmp_path, plan, "aaaa"))
    second = prepared(tmp_path, plan, "bbbb")
    take_over_answers(second)
    folded = second.shards_dir("rt") / "folded.jsonl"
    data = folded.read_bytes()
    place = data.index(b'"sample_id":"s5"')
    folded.write_bytes(data[: place + 3] + b"\x00" + data[place + 4 :])
    (state,) = damaged(Experiment(second.path), ["rt"])
    assert state.shard.index == 1


@pytest.mark.parametrize("size", [0, 10, 60, 200, -3])
def test_a_cut_index_costs_time_only(tmp_path: Path, size: int) -> None:
    plan = planned(tmp_path, 10)
    answer_index.write_index(answered(prepared(tmp_path, plan, "aaaa")))
    (file,) = (tmp_path / "answers").glob("*/*.index")
    file.write_bytes(file.read_bytes()[:size])
    assert take_over_answers(prepared(tmp_path, plan, "bbbb")).count == 10


def test_an_index_with_wrong_bits_gives_no_wrong_answer(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    first = answered(prepared(tmp_path, plan, "aaaa"))
    answer_index.write_index(first)
    (file,) = (tmp_path / "answers").glob("*/*.index")
    data = bytearray(file.read_bytes())
    start = data.index(b"\n") + 1 + 80  # origins
    data[start : start + 8] = b"\xff" * 8
    file.write_bytes(data)
    second = prepared(tmp_path, plan, "bbbb")
    assert take_over_answers(second).count == 9
    assert texts(second).items() <= texts(first).items()


def test_two_submitters_at_once_get_the_same(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    answered(prepared(tmp_path, plan, "aaaa"))
    both = [prepared(tmp_path, plan, name) for name in ("bbbb", "cccc")]
    with ThreadPoolExecutor(2) as pool:
        assert [one.count for one in pool.map(take_over_answers, both)] == [10, 10]
    assert texts(both[0]) == texts(both[1])


def test_only_one_submitter_takes_over_for_an_experiment(tmp_path: Path) -> None:
    here = prepared(tmp_path, planned(tmp_path, 10), "aaaa")
    with alone(here), pytest.raises(RunFailed), alone(here):
        pass


def test_another_users_experiment_is_left_out(tmp_path: Path) -> None:
    plan = planned(tmp_path, 10)
    first = answered(prepared(tmp_path, plan, "aaaa"))
    answer_index.write_index(first)
    (first.path / "manifest.json").unlink()  # unreadable, for root too
    assert take_over_answers(prepared(tmp_path, plan, "bbbb")).count == 0


def test_a_worker_finds_taken_answers_by_name_and_folded(tmp_path: Path) -> None:
    answered(prepared(tmp_path, planned(tmp_path, 10), "aaaa"))
    second = prepared(tmp_path, planned(tmp_path, 13), "bbbb", samples=13)
    take_over_answers(second)
    store = ClaimStore(second, "g0", Owner("1_0", 0, "h", 1))
    assert sorted(store.claimed("rt")) == [0, 1]
    (state,) = [one for one in shard_states(second, ["rt"]) if one.shard.index == 2]
    assert (state.state, state.answered, state.owner) == ("drained", 2, None)
    taken = claim(second, state, Owner("1_0", 0, "h", 1))
    assert isinstance(taken, Claim)
    assert taken.answered == {"s8", "s9"}


# --- what a dry run knows ------------------------------------------------------------------------------


def test_a_dry_run_counts_by_the_file_of_an_image_and_by_a_tag_that_was_built(
    tmp_path: Path,
) -> None:
    cache, weights, sif = tmp_path / "cache", tmp_path / "weights", tmp_path / "x.sif"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"w")
    sif.write_bytes(b"sif")
    built = cache / "images" / f"{'1' * 64}-key.sif"
    built.parent.mkdir(parents=True)
    built.write_bytes(b"built")
    note(built, "docker://reg/x:1", "docker", "reg/x", IMAGE.digest or "", "apptainer", 1.0)

    def plan_of(image: str, count: int = 4) -> ResolvedPlan:
        return planned(tmp_path, count, {"model": {"image": image, "source": str(weights)}})

    def said(plan: ResolvedPlan) -> tuple[int | None, list[str]]:
        found = forecast(preview_of(plan), "greedy")
        return found.asked("rt"), [*found.lines()]

    assert said(plan_of(str(sif))) == (
        4, [f"asks all of 4 samples: {sif} was not prepared here before"],
    )  # fmt: skip
    digest = file_digest(sif, cache)
    assert said(plan_of(str(sif)))[1] == [
        "asks all of 4 samples: model m was not hashed here before"
    ]
    of_weights = content_hash(weights, folder_files(weights), cache / "hashes.json")
    assert said(plan_of(str(sif)))[1] == [
        "asks all of 4 samples: no earlier experiment has an answer that fits"
    ]
    for name, image, of_image in (
        ("aaaa", str(sif), digest),
        ("bbbb", "docker://reg/x:1", IMAGE.digest),
    ):
        plan = plan_of(image)
        here = prepared(tmp_path, plan, name, samples=4)
        (task,) = plan.run_tasks
        basis = answer_basis(task, of_weights, Environment("apptainer", "", of_image))
        write_json(
            here.manifest_file, {**read_json(here.manifest_file), "answer_bases": {"rt": basis}}
        )
        answered(Experiment(here.path))
        answer_index.write_index(Experiment(here.path))
        count, lines = said(plan_of(image, 5))
        assert count == 1
        assert lines[0].startswith(
            f"asks 1 of 5 samples: 4 have an answer under the same key in {here.id}"
        )
    assert lines[1:] == ["this holds if docker://reg/x:1 has not changed since it was built here"]
    ahead = outlook(preview_of(plan_of(str(sif), 9)), "greedy")
    each = ahead.estimate.rates["rt"].seconds
    assert ahead.estimate.groups[0].work_seconds.value == pytest.approx(5 * each)


# --- the index ----------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 6), max_size=12),
    st.lists(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), max_size=8), max_size=3),
    st.sets(st.integers(1, 5), max_size=2),
    st.sampled_from((1, 3, 100)),
)
def test_each_key_gets_an_answer_of_its_own(
    keys: list[int], given_: list[list[tuple[int, int]]], taken: set[int], at_once: int
) -> None:
    import numpy

    found = []
    for rows in given_:
        ordered = sorted(rows)
        columns = (
            numpy.array([key << 61 for key, _ in ordered], "u8"),
            numpy.array([key * 10 + origin for key, origin in ordered], "u8"),
            numpy.arange(len(ordered), dtype="u4"),
        )
        found.append(answer_index.Source(Experiment(Path("x")), None, len(ordered), 0, columns, []))
    wanted = numpy.array([key << 61 for key in keys], "u8")
    out = {key * 10 + origin for key in range(1, 7) for origin in taken}
    with mock.patch.object(answer_index, "AT_ONCE", at_once):
        rows = answer_index.find(found, wanted, numpy.array([*out], "u8"))
    origins = [int(one) for source in found for one in source.read(1, 0, source.count)]
    chosen = [origins[row] if row >= 0 else None for row in rows]
    used = [one for one in chosen if one is not None]
    assert len(used) == len(set(used))
    for key in set(keys):
        there = {key * 10 + origin for rows in given_ for one, origin in rows if one == key} - out
        served = [one for k, one in zip(keys, chosen, strict=True) if k == key and one is not None]
        assert set(served) <= there
        assert len(served) == min(keys.count(key), len(there))


def test_an_index_is_written_once(tmp_path: Path) -> None:
    first = answered(prepared(tmp_path, planned(tmp_path, 10), "aaaa"))
    answer_index.write_index(first)
    (file,) = (tmp_path / "answers").glob("*/*.index")
    before = file.stat().st_ino
    answer_index.write_index(first)
    assert file.stat().st_ino == before


# --- gc -----------------------------------------------------------------------------------------------


def test_gc_keeps_sources_of_experiments_that_stay_and_removes_what_is_left_of_the_gone(
    tmp_path: Path,
) -> None:
    plan = planned(tmp_path, 10)
    first = answered(prepared(tmp_path, plan, "aaaa"))
    second, third = (prepared(tmp_path, plan, name) for name in ("bbbb", "cccc"))
    take_over_answers(second)
    take_over_answers(third)
    old = [gc.Finding(one, "", gc.DiskUsage(1, 1), 0, (), 0.0) for one in (first, second)]
    assert [one.experiment for one in gc.deletable(old, tmp_path, 1)] == [second]
    everything = [*old, gc.Finding(third, "", gc.DiskUsage(1, 1), 0, (), 0.0)]
    assert len(gc.deletable(everything, tmp_path, 1)) == 3
    (folder,) = (tmp_path / "answers").iterdir()
    answer_index.write_index(first)
    assert [*answer_index.unused(tmp_path)] == []
    for here in (first, second, third):
        gc.delete(here)
    gone = [*answer_index.unused(tmp_path)]
    assert [one.stem for one in sorted(gone[:-1])] == [first.id, second.id, third.id]
    assert gone[-1] == folder


def test_what_was_taken_over_is_written_once(tmp_path: Path) -> None:
    here = prepared(tmp_path, planned(tmp_path, 2), "aaaa", samples=2)
    Reused({"rt": {"x": 2}}).write(here)
    assert take_over_answers(here).experiments == {"x": 2}
    write_json(here.reused_file, {"run_tasks": 5})
    assert reused_of(here) is None
    assert read_json(here.reused_file)


def test_a_pace_counts_only_what_the_worker_asked(tmp_path: Path) -> None:
    answered(prepared(tmp_path, planned(tmp_path, 10), "aaaa"))
    second = prepared(tmp_path, planned(tmp_path, 13), "bbbb", samples=13)
    take_over_answers(second)
    answered(second)
    states = [
        one._replace(last={**one.last, "time": one.began + 6.0})
        for one in shard_states(second, ["rt"])
        if one.attempt
    ]
    found = {one.answered: one.end - one.began for one in spans(states, 0.0, {})}
    assert found == {2: pytest.approx(6.0), 1: pytest.approx(6.0)}


def test_a_submission_continues_without_an_index_that_it_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(experiment: Experiment) -> None:
        raise PermissionError(13, "Permission denied")

    plan = planned(tmp_path, 10)
    answered(prepared(tmp_path, plan, "aaaa"))
    second = prepared(tmp_path, plan, "bbbb")
    monkeypatch.setattr(answer_index, "announce", refused)
    assert take_over_answers(second).count == 10
