"""Total failure does not look like success: coverage, and how run tasks and experiments end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench import finalise
from hpcbench.cli.main import main
from hpcbench.comparison import history
from hpcbench.evaluation import stage
from hpcbench.evaluation.endings import endings
from hpcbench.experiment.archiving import fold
from hpcbench.experiment.claims import Owner, answers_of, claim
from hpcbench.experiment.control import control_request
from hpcbench.experiment.counts import Counts
from hpcbench.experiment.ending import ending_of, experiment_end, remarks
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import ended, state_of
from hpcbench.experiment.view.answers import answer_frames
from hpcbench.experiment.view.metrics_json import Scores, metrics_of
from hpcbench.files.atomic import write_json
from hpcbench.status import status
from hpcbench.status.liveness import ask_again, remaining
from tests.unit.small import experiment, record, response, write_attempt

COUNTS = st.integers(0, 200)


def table(ok: int = 6, invalid: int = 0, failed: int = 0, **more: Any) -> Scores:
    """A run task with so many samples of each end."""
    return Scores.model_validate(said(ok, invalid, failed, **more))


def said(ok: int = 6, invalid: int = 0, failed: int = 0, **more: Any) -> dict[str, Any]:
    """Entry in `metrics.json` of a run task with so many samples of each end."""
    outcomes = {"ok": ok + invalid, "failed": failed}
    return {
        "asked": ok + invalid + failed, "answered": ok + invalid, "invalid": invalid, "skipped": 0,
        "outcomes": {name: count for name, count in outcomes.items() if count},
        "metrics": {"anls": {"value": 0.5} if ok else None}, "groups": [], **more,
    }  # fmt: skip


def answered(folder: Path, texts: list[str | None], **task: Any) -> Scores:
    """The table of a run task whose samples were answered so; None: the request failed."""
    here = experiment(folder, [record(number) for number in range(len(texts))], 100, **task)
    write_attempt(here, 0, 1, [response(f"s{number}", text) for number, text in enumerate(texts)])
    return stage.evaluate(here).run_tasks["rt"]


@given(ok=COUNTS, invalid=COUNTS, failed=COUNTS, skipped=COUNTS, least=st.floats(0, 1))
def test_a_run_task_is_done_only_with_enough_samples_that_are_ok(
    ok: int, invalid: int, failed: int, skipped: int, least: float
) -> None:
    found = ending_of(table(ok, invalid, failed, skipped=skipped), least)
    whole = ok + invalid + failed + skipped
    assert (
        found.coverage
        == Counts(ok + invalid + failed, ok + invalid, invalid, skipped).coverage
        == (ok / whole if whole else 0)
    )
    assert (found.state == "failed") == (ok == 0)
    assert (found.state == "done") == (ok > 0 and ok / whole >= least)
    assert bool(found.reason) == (found.state != "done")


@pytest.mark.parametrize("policy", ["zero", "exclude"])
def test_of_requests_that_all_failed_there_is_no_value_whatever_the_policy(
    tmp_path: Path, policy: str
) -> None:
    found = answered(tmp_path, [None] * 4, on_failed=policy, on_invalid=policy)
    assert set(found.metrics.values()) == {None}
    assert (found.ok, found.coverage) == (0, 0.0)
    ended = ending_of(found, 0.0)
    assert ended.state == "failed"
    assert ended.reason.startswith("nothing was scored: 4 of 4 requests failed, most often: ")


def test_what_a_policy_counts_as_zero_lowers_the_value_and_does_not_raise_coverage(
    tmp_path: Path,
) -> None:
    found = answered(tmp_path, ["0", None], on_failed="zero")
    assert [entry.value for entry in found.values.values()] == [0.5]
    assert found.coverage == 0.5
    assert ending_of(found, 0.5).state == "done"
    ended = ending_of(found, 0.9)
    assert ended.state == "incomplete"
    assert ended.reason.startswith("1 of 2 samples are ok (50 %), min_coverage requires 90 %")


def test_a_share_below_the_limit_is_never_shown_as_the_limit() -> None:
    assert "(89.9 %), min_coverage requires 90 %" in ending_of(table(8_999, 0, 1_001), 0.9).reason


def test_a_share_is_rounded_as_in_every_table() -> None:
    assert "(51.7 %), min_coverage requires 90 %" in ending_of(table(31, 0, 29), 0.9).reason


def test_a_cause_that_ends_in_a_full_stop_does_not_end_in_two() -> None:
    lost = table(0, 0, 3, errors=[{"message": "Too many images.", "count": 3}])
    assert ending_of(lost, 0.9).reason.endswith("most often: Too many images")


def test_work_that_is_left_makes_a_run_task_incomplete_however_much_is_ok() -> None:
    most = table(99, outcomes={"ok": 99, "missing": 1}, asked=100)
    assert ending_of(most, 0.9).state == "done"
    ended = ending_of(most, 0.9, left=1)
    assert (ended.state, ended.reason) == ("incomplete", "1 of 100 samples were not asked")


def test_the_reason_names_the_metric_that_could_score_no_answer() -> None:
    fault = {"metric": "f1", "message": "references are texts", "count": 6, "sample": "s0"}
    lost = table(metrics={"f1": None}, faults=[fault])
    why = "f1 could not score 6 of 6 answers, most often: references are texts"
    assert ending_of(lost, 0.9) == ending_of(lost, 0.0)
    assert ending_of(lost, 0.9).reason == f"nothing was scored: {why}"
    assert remarks({"kie": lost}) == [f"– kie: nothing was scored: {why}"]
    part = table(metrics={"anls": {"value": 1.0}, "f1": None}, faults=[fault])
    assert remarks({"kie": part}) == ["– kie: f1 scored no sample: references are texts"]


def test_a_value_that_leaves_out_samples_of_a_faulty_metric_says_so() -> None:
    fault = {"metric": "anls", "message": "not a number", "count": 4, "sample": "s0"}
    found = table(metrics={"anls": {"value": 1.0, "faults": 4}}, faults=[fault])
    why = "anls could not score 4 samples, its value leaves them out, most often: not a number"
    assert remarks({"kie": found}) == [f"! kie: {why}"]


def test_an_experiment_is_failed_if_nothing_of_it_was_scored_and_else_incomplete() -> None:
    done, failed = ending_of(table(), 0.9), ending_of(table(0, 0, 3), 0.9)
    short = ending_of(table(1, 0, 9), 0.9)
    assert experiment_end({"a": done}) == ("done", "")
    assert experiment_end({"a": failed}) == ("failed", failed.reason)
    assert experiment_end({"a": failed}, cancelled=True) == ("cancelled", "")
    state, why = experiment_end({"a": done, "b": short, "c": failed, "d": failed})
    assert state == "incomplete"
    assert why == (
        f"c is failed: {failed.reason}; d is failed: {failed.reason}; and 1 more run tasks"
    )


def test_a_file_of_an_earlier_version_is_read_by_the_same_rule(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(0)], 1)
    row = {"by": {}, "metric": "anls", "value": 0.0, "low": 0.0, "high": 0.49, "n": 6}
    old = {
        **said(0, 0, 6), "metrics": {"anls": {"value": 0.0, "low": 0.0, "high": 0.49}},
        "coverage": 0.0, "groups": [{"by": ["kind"], "groups": 1, "rows": [row]}],
    }  # fmt: skip
    unread = {**said(3, 3), "coverage": 1.0}
    write_json(here.metrics_file, {"version": 2, "run_tasks": {"old": old, "unread": unread}})
    found = metrics_of(here).run_tasks
    assert found["old"].metrics == {"anls": None}
    assert found["old"].groups[0].rows[0].value is None
    assert (found["unread"].ok, found["unread"].coverage) == (3, 0.5)
    assert Scores.model_validate(found["unread"].to_json()) == found["unread"]


# --- what an experiment says of itself, and how it goes on ------------------------------------------------


def concluded(folder: Path, texts: list[str | None], **task: Any) -> Experiment:
    """An experiment of four samples a shard that was answered so and has ended, without reports."""
    here = experiment(folder, [record(number) for number in range(len(texts))], 4, **task)
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[], excluded=[], answered=0)
        log.write("handed", sync=True)
    for shard in here.work.shards:
        some = [response(f"s{at}", texts[at]) for at in range(shard.start, shard.stop)]
        write_attempt(here, shard.index, 1, some)
    stages = here.resolved.plan.model_copy(update={"stages": ("evaluation",), "executor": "local"})
    here.resolved_file.write_text(
        here.resolved.model_copy(update={"plan": stages}).model_dump_json()
    )
    here = Experiment(here.path)
    finalise.conclude(here)
    return here


def test_status_says_in_its_first_words_that_nothing_was_scored(tmp_path: Path) -> None:
    now = status(concluded(tmp_path, [None] * 8))
    assert (now.state, now.run_tasks[0].state, now.run_tasks[0].coverage) == ("failed", "failed", 0)
    assert now.answered == now.samples
    assert now.reason is not None
    assert now.reason.startswith("nothing was scored: 8 of 8 requests failed, most often: ")
    assert now.needs is not None
    assert "hpcbench resume" in now.needs


def worker(here: Experiment, *events: str) -> None:
    here.workers_dir.mkdir(exist_ok=True)
    with EventLog(here.worker_events("g0", "1_0-0")) as log:
        for event in events:
            message = {"message": "no CUDA driver."} if event == "model_failed" else {}
            log.write(event, sync=True, model=here.resolved.run_tasks[0].model.name, **message)


def test_the_reason_says_why_a_model_was_never_loaded(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(4)], 4)
    worker(here, "model_failed")
    stage.evaluate(here)
    model = here.resolved.run_tasks[0].model.name
    assert endings(here)["rt"].reason == (
        f"nothing was scored: 4 of 4 samples were not asked; {model} was not loaded: no CUDA driver"
    )


def test_a_load_that_failed_is_no_reason_where_another_one_did_not(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(4)], 4)
    worker(here, "model_failed", "model_ready")
    assert "was not loaded" not in endings(here)["rt"].reason


@pytest.mark.parametrize(("texts", "state"), [(["", " "] * 4, "failed"), (["", "1"] * 4, "done")])
def test_a_run_task_whose_answers_are_all_empty_failed_with_its_pilot(
    tmp_path: Path, texts: list[str], state: str
) -> None:
    here = experiment(tmp_path, [record(number) for number in range(8)])
    for index in range(2):
        places = range(4 * index, 4 * index + 4)
        write_attempt(here, index, 1, [response(f"s{one}", texts[one]) for one in places])
    stage.evaluate(here)
    assert endings(here)["rt"].state == "done", "without a failed pilot they are answers"
    control_request(here, "fail", ["rt"], "its pilot failed")
    assert endings(here)["rt"].state == state


def test_a_run_task_may_ask_for_less_than_its_plan(tmp_path: Path) -> None:
    half: list[str | None] = ["0", "1", None, None]
    short = status(concluded(tmp_path / "plan", half))
    assert (short.state, short.run_tasks[0].state) == ("incomplete", "incomplete")
    assert short.reason == short.run_tasks[0].reason
    assert status(concluded(tmp_path / "own", half, min_coverage=0.5)).state == "done"


@pytest.mark.parametrize("texts", [[None] * 4, [None, "1", "2", "3", *["x"] * 4]])
def test_what_did_not_end_well_is_part_of_no_trend(tmp_path: Path, texts: list[str | None]) -> None:
    here = concluded(tmp_path, texts)
    frame = history.table(tmp_path)
    assert (frame is None) == (state_of(here) == "failed")
    assert history.trends(tmp_path, "*") == []


def test_an_old_success_of_nothing_is_taken_out_of_the_history(tmp_path: Path) -> None:
    here = concluded(tmp_path, ["0", "1"])
    assert [trend.name for trend in history.trends(tmp_path, "exact_match")] == ["exact_match"]
    tables = metrics_of(here).to_json()
    rt = {**tables["run_tasks"]["rt"], "answered": 0, "ok": 0, "outcomes": {"failed": 2}}
    write_json(here.metrics_file, {**tables, "run_tasks": {"rt": rt}})
    history.rebuild(tmp_path)
    assert history.trends(tmp_path, "*") == []


def test_resume_asks_again_what_failed_and_nothing_else(tmp_path: Path) -> None:
    here = concluded(tmp_path, ["0", None, "2", None, None, None, None, None])
    ask_again(here)
    states = {state.shard.index: state for state in remaining(here)}
    assert {index: state.answered for index, state in states.items()} == {0: 2, 1: 0}
    taken = claim(here, states[0], Owner("2_0", 0, "h", 1))
    assert taken is not None
    assert taken.answered == {"s0", "s2"}
    for name in ("s1", "s3"):
        taken.record(response(name, name[1:]))
    taken.acknowledge()
    taken.end("done")
    found = {
        name: answer.text for shard, own in answers_of(here, "rt") for name, answer in own.items()
    }
    assert found == {"s0": "0", "s1": "1", "s2": "2", "s3": "3"}
    exported = polars.concat(answer_frames(here, "rt", lambda path, lines: None))
    assert dict(exported.select("sample", "answer").iter_rows()) == found
    fold(here, "rt")
    assert {state.shard.index for state in remaining(here)} == {1}
    assert [sorted(own) for _, own in answers_of(here, "rt")] == [sorted(found), []]
    finalise.conclude(here)
    assert status(here).reason == ("4 of 8 samples are ok (50 %), min_coverage requires 90 %")


def test_scoring_again_brings_the_outcome_up_to_date(tmp_path: Path) -> None:
    here = concluded(tmp_path, [None] * 4)
    ask_again(here)
    write_attempt(here, 0, 3, [response(f"s{number}", str(number)) for number in range(4)])
    stage.evaluate(here)
    finalise.scored_again(here)
    assert (status(here).state, status(here).reason) == ("done", None)


def test_an_experiment_without_its_submission_file_is_scored_all_the_same(tmp_path: Path) -> None:
    here = concluded(tmp_path, ["0"])
    here.submission_file.unlink()
    assert not ended(here)
    assert main(["score", str(here.path)]) == 0


def test_a_run_on_this_machine_does_not_blame_slurm_for_a_signal(tmp_path: Path) -> None:
    here = concluded(tmp_path, ["0"])
    with EventLog(here.worker_events("g0", "1-0")) as log:
        owner = {"job": "1", "restart": 0, "host": "h", "pid": 1}
        log.write("started", owner=owner)
        log.write("draining", signal="SIGTERM")
        log.write("stopped", sync=True)
    (alarm,) = status(here).alarms
    assert "another process of this machine" in alarm.cause
    assert "Slurm" not in alarm.cause


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e999", "null", "[]"])
def test_an_outcome_of_no_round_is_none(tmp_path: Path, number: str) -> None:
    here = Experiment(tmp_path)
    here.outcome_file.write_text(f'{{"round": {number}, "state": "done"}}')
    assert state_of(here) == ""
