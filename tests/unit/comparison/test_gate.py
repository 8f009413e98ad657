"""Verdicts of a gate on a candidate: by scores, by speed, by what is missing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.main import main
from hpcbench.comparison.gate import Check, Verdict, decide, judge
from hpcbench.comparison.gate.quality_checks import rule_for
from hpcbench.comparison.gate.speed_checks import MeasuredFigure, ratio
from hpcbench.comparison.gate.verdict import worth_an_alert
from hpcbench.errors import RunFailed, UserError
from hpcbench.evaluation.repeats import base_of
from hpcbench.experiment.control import control_request
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from tests.unit.command import Cli
from tests.unit.comparison.judged import ended, policy, speeds, started, the_plan, wrong


def check(verdict: Verdict, what: str, run_task: str = "rt") -> Check:
    (found,) = (one for one in verdict.checks if (one.run_task, one.what) == (run_task, what))
    return found


# --- scores --------------------------------------------------------------------------------------------


def test_a_candidate_that_answers_the_same_passes_where_documents_are_many_enough(
    tmp_path: Path,
) -> None:
    one, other = ended(tmp_path, "e1", wrong(1)), ended(tmp_path, "e2", wrong(1))
    found = judge(one, other, policy())
    assert (found.verdict, found.exit_code) == ("GO", 0)
    what = check(found, "exact_match")
    assert "on 60 documents: not worse by more than 0.1" in what.why
    assert (what.low, what.identical) == (pytest.approx(-0.0596, abs=1e-4), True)


def test_the_same_answers_of_few_documents_prove_little(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2")
    found = judge(one, other, policy(metrics={"*": {"absolute": 0.01}}))
    assert (found.verdict, found.exit_code) == ("INCONCLUSIVE", 5)
    assert (
        "no sample differs, but 60 documents cannot exclude that it is worse by 0.01: "
        "that takes 370 documents without a difference" in found.reasons[0]
    )
    assert not worth_an_alert(found.to_json()), "it would say so every night"


def test_a_policy_may_take_the_same_answers_for_proof_and_the_verdict_says_so(
    tmp_path: Path,
) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2")
    found = judge(one, other, policy(identical="pass", metrics={"*": {"absolute": 0.01}}))
    assert found.verdict == "GO"
    assert any("do not limit to 2.5 %" in reason for reason in found.reasons)
    worse = ended(tmp_path, "e3", wrong(*range(24)))
    found = judge(one, worse, policy(identical="pass"))
    assert (found.verdict, worth_an_alert(found.to_json())) == ("NO-GO", True)


def test_an_unknown_difference_is_worth_an_alert(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2", wrong(*range(6)))
    found = judge(one, other, policy())
    assert (found.verdict, worth_an_alert(found.to_json())) == ("INCONCLUSIVE", True)
    assert "documents would decide" in found.reasons[0]


def test_a_candidate_that_is_worse_by_more_than_the_margin_fails(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2", wrong(*range(24)))
    found = judge(one, other, policy())
    assert (found.verdict, found.exit_code) == ("NO-GO", 4)
    what = check(found, "exact_match")
    assert (what.baseline, what.candidate, what.margin) == (1.0, pytest.approx(0.6), 0.1)
    assert what.high is not None
    assert what.high < -0.1
    assert "rt, exact_match: fail (critical)" in found.reasons[0]


def test_what_may_or_may_not_be_within_the_margin_is_inconclusive(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2", wrong(*range(6)))
    found = judge(one, other, policy())
    assert (found.verdict, found.exit_code) == ("INCONCLUSIVE", 5)
    assert "undecided whether it is worse" in found.reasons[0]
    assert judge(one, other, policy(on_inconclusive="no-go")).verdict == "NO-GO"
    assert judge(one, other, policy(metrics={"*": {"absolute": 0.3}})).verdict == "GO"


def test_a_metric_of_which_less_is_better_is_judged_the_other_way_round(tmp_path: Path) -> None:
    one = ended(tmp_path, "e1", metrics=("wer",))
    other = ended(tmp_path, "e2", wrong(*range(24)), metrics=("wer",))
    assert judge(one, other, policy()).verdict == "NO-GO"
    assert judge(other, one, policy()).verdict == "GO"


def test_of_two_margins_the_wider_one_counts(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1", wrong(*range(30))), ended(tmp_path, "e2", wrong(*range(30)))
    both = policy(metrics={"exact_match": {"absolute": 0.01, "relative": 0.1}})
    assert check(judge(one, other, both), "exact_match").margin == pytest.approx(0.05)


def test_an_advisory_failure_is_reported_and_decides_nothing(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2", wrong(*range(24)))
    rules = {"exact_match": {"absolute": 0.1, "level": "advisory"}}
    found = judge(one, other, policy(metrics=rules))
    assert found.verdict == "GO"
    assert any("fail (advisory)" in reason for reason in found.reasons)
    assert judge(one, other, policy(metrics=rules, on_advisory="inconclusive")).exit_code == 5


# --- what is missing, or is not the same ---------------------------------------------------------------


def test_a_run_task_or_metric_that_the_candidate_lacks_fails(tmp_path: Path) -> None:
    one = ended(tmp_path, "e1", tasks=("rt", "more"), metrics=("exact_match", "anls"))
    other = ended(tmp_path, "e2", metrics=("exact_match",))
    found = judge(one, other, policy())
    assert found.verdict == "NO-GO"
    assert check(found, "run task", "more").verdict == "fail"
    assert check(found, "anls").why == "the candidate has no scores of this metric"
    # Whatever the policy says of it: what is gone cannot have been examined.
    advisory = policy(metrics={"*": {"absolute": 0.1, "level": "advisory"}})
    assert check(judge(one, other, advisory), "anls").level == "critical"


def test_too_few_answers_fail(tmp_path: Path) -> None:
    one = ended(tmp_path, "e1")
    other = ended(tmp_path, "e2", dict.fromkeys(range(6)), on_failed="exclude")
    found = judge(one, other, policy(same=()))
    assert check(found, "coverage").verdict == "fail"
    assert found.verdict == "NO-GO"
    assert judge(one, other, policy(same=(), coverage={"least": 0.9})).verdict == "GO"


def test_other_files_or_prompts_are_no_common_ground(tmp_path: Path) -> None:
    one = ended(tmp_path, "e1")
    from tests.unit.comparison.judged import answered

    other = answered(started(tmp_path, "e2", the_plan(tmp_path), dataset="sha256:other"))
    found = judge(one, other, policy())
    assert (found.verdict, check(found, "exact_match").why) == (
        "INCONCLUSIVE", "the dataset's files differ",
    )  # fmt: skip
    third = ended(tmp_path, "e3", prompt={"user": "Read: {{ question }}"})
    assert judge(one, third, policy()).verdict == "GO"
    found = judge(one, third, policy(same=("prompt",)))
    assert "prompts differ" in check(found, "exact_match").why
    for here in (one, third):  # one text under two names, or with its images elsewhere
        measured = {**here.manifest.measured, "prompt_hashes": {"rt": "sha256:1"}}
        write_json(here.manifest_file, {**read_json(here.manifest_file), "measured": measured})
    same = [Experiment(here.path) for here in (one, third)]
    assert "prompts differ" not in check(judge(*same, policy(same=("prompt",))), "exact_match").why


def test_another_metric_of_the_same_name_is_not_compared(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2")
    reported = json.loads(other.resolved_file.read_text())
    reported["run_tasks"][0]["metrics"][0]["options"] = {"case": "lower"}
    other.resolved_file.write_text(json.dumps(reported))
    found = judge(one, Experiment(other.path), policy())
    assert "the signatures differ" in check(found, "exact_match").why
    assert found.verdict == "INCONCLUSIVE"


def test_what_did_not_end_well_is_never_a_go(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2", state="incomplete")
    found = judge(one, other, policy())
    assert found.verdict == "INCONCLUSIVE"
    assert "the candidate is incomplete" in found.reasons[0]


def test_samples_that_a_budget_left_unasked_are_no_failures(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2", dict.fromkeys(range(50)))
    for name in ("coverage", "exact_match"):
        assert check(judge(one, other, policy(same=())), name).verdict == "fail"
    control_request(
        other, "stop", ["rt"], "the rest is not asked: budget (10 of 10 requests spent)"
    )
    found = judge(one, other, policy(same=()), state="incomplete")
    for name in ("coverage", "exact_match"):
        decided = check(found, name)
        assert decided.verdict == "inconclusive"
        assert decided.why.startswith("the rest is not asked: budget (10 of 10 requests spent); ")
    assert (found.verdict, found.failing) == ("INCONCLUSIVE", ()), "so nothing is asked again"


def test_a_policy_that_judges_nothing_lets_nothing_pass(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2")
    nothing = policy(metrics={"other:*": {"absolute": 0.1}})
    assert judge(one, other, nothing).verdict == "INCONCLUSIVE"
    idle = policy(metrics={}, coverage={"least": 0.5, "level": "advisory"})
    assert "nothing was judged" in judge(one, other, idle).reasons[0]


def test_an_experiment_is_not_judged_by_itself_nor_without_scores(tmp_path: Path) -> None:
    one = ended(tmp_path, "e1")
    with pytest.raises(UserError, match="is the baseline itself"):
        judge(one, Experiment(one.path), policy())
    bare = started(tmp_path, "e2", the_plan(tmp_path))
    with pytest.raises(RunFailed, match="hpcbench score e2"):
        judge(one, bare, policy())


# --- repeats -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_repeats_of_a_run_task_are_judged_together(tmp_path: Path) -> None:
    """Each repeat alone loses eight samples by chance, and always others: their mean shows less spread."""
    one = ended(tmp_path, "e1", tasks=("rt-r1", "rt-r2", "rt-r3"))
    flaky = {f"rt-r{number + 1}": wrong(*range(8 * number, 8 * number + 8)) for number in range(3)}
    other = ended(tmp_path, "e2", flaky, tasks=("rt-r1", "rt-r2", "rt-r3"))
    found = check(judge(one, other, policy(metrics={"*": {"absolute": 0.2}})), "exact_match")
    assert found.candidate == pytest.approx(1 - 8 / 60)
    alone = ended(tmp_path, "e3", wrong(*range(8)), tasks=("rt-r1",))
    once = check(judge(one, alone, policy(metrics={"*": {"absolute": 0.2}})), "exact_match")
    assert found.low is not None
    assert once.low is not None
    assert found.low > once.low
    assert (found.verdict, once.verdict) == ("pass", "inconclusive")


@pytest.mark.long
def test_repeats_that_all_answer_the_same_say_what_one_run_says(tmp_path: Path) -> None:
    """The same for means, ratios of sums and corpus metrics."""
    metrics, names = ("exact_match", "wer", "bleu"), ("rt-r1", "rt-r2")
    lost = wrong(*range(9))
    alone = [ended(tmp_path, f"e{n}", texts, metrics=metrics) for n, texts in ((1, {}), (2, lost))]
    again = [
        ended(tmp_path, f"e{n}", texts, tasks=names, metrics=metrics)
        for n, texts in ((3, dict[int, str | None]()), (4, lost))
    ]
    once, twice = judge(*alone, policy()), judge(*again, policy())
    for name in metrics:
        assert check(twice, name) == check(once, name)


def test_scores_that_cannot_be_read_are_no_verdict(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2")
    other.scores_file("rt").write_bytes(b"PAR1")
    with pytest.raises(RunFailed, match="`hpcbench score e2` computes them again"):
        judge(one, other, policy())


@pytest.mark.long
def test_a_failure_that_does_not_come_again_is_none_with_what_confirms_it(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2", wrong(*range(24)))
    again = [ended(tmp_path, f"e{number}") for number in (3, 4, 5)]
    margin = policy(metrics={"*": {"absolute": 0.2}})
    assert judge(one, other, margin).verdict == "NO-GO"
    found = judge(one, other, margin, again)
    assert found.verdict == "GO"
    assert found.confirmed_by == ("e3", "e4", "e5")
    assert check(found, "exact_match").candidate == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("name", "base"),
    [("vqa", "vqa"), ("vqa-r2", "vqa"), ("vqa-r12-c8", "vqa-c8"), ("vqa-r2.0", "vqa-r2.0"),
     ("vqa-r3-r2.5", "vqa-r2.5"), ("my-r2d2", "my-r2d2")],
)  # fmt: skip
def test_the_mark_of_a_repeat_is_no_part_of_a_name(name: str, base: str) -> None:
    assert base_of(name) == base


# --- speed and memory ----------------------------------------------------------------------------------

RULE = {"relative": 0.1}
SPEED = policy(speed={"e2e_p50": RULE, "e2e_p95": RULE, "answers_per_s": RULE})


def test_a_slower_candidate_is_reported_and_fails_where_speed_is_critical(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), speeds(ended(tmp_path, "e2"), e2e=130, rate=7)
    found = judge(one, other, SPEED)
    assert found.verdict == "GO"
    assert [one.verdict for one in found.checks if one.kind == "speed"] == ["fail"] * 3
    strict = policy(speed={"e2e_p95": {"relative": 0.1, "level": "critical"}})
    assert judge(one, other, strict).verdict == "NO-GO"
    # A quicker one passes, whatever the margin.
    assert all(one.verdict == "pass" for one in judge(other, one, SPEED).checks)


def test_speed_within_its_own_uncertainty_is_inconclusive(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), speeds(ended(tmp_path, "e2"), e2e=109, spread=0.05)
    assert check(judge(one, other, SPEED), "e2e_p50").verdict == "inconclusive"


def test_another_gpu_is_never_a_silent_pass(tmp_path: Path) -> None:
    one, other = ended(tmp_path, "e1"), speeds(ended(tmp_path, "e2"), e2e=10, gpu="NVIDIA A100")
    strict = policy(speed={"e2e_p50": {"relative": 0.1, "level": "critical"}})
    found = judge(one, other, strict)
    assert found.verdict == "INCONCLUSIVE"
    why = check(found, "e2e_p50").why
    assert why == "GPUs differ: NVIDIA H100 → NVIDIA A100"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"hardware": None}, "the files do not show which GPUs"),
        ({"valid": False}, "client was too slow"),
        ({"load": {"concurrency": 8, "rate": None, "arrival": None}}, "the loads differ"),
        ({"e2e_ms": {"p50": {"value": None, "needs": 59}}}, "the figure needs 59 answers"),
    ],
)
def test_what_cannot_be_compared_says_why(tmp_path: Path, changed: Any, why: str) -> None:
    one, other = ended(tmp_path, "e1"), speeds(ended(tmp_path, "e2"), **changed)
    found = check(judge(one, other, SPEED), "e2e_p50")
    assert found.verdict == "inconclusive"
    assert why in found.why


def test_more_memory_than_allowed_fails_and_other_ways_to_count_are_reported(
    tmp_path: Path,
) -> None:
    rules = policy(memory={"gpu_peak": {"relative": 0.1, "level": "critical"}})
    one, other = ended(tmp_path, "e1"), ended(tmp_path, "e2")
    speeds(other, memory={"gpus": 1, "gpu_peak": 50 * 2**30, "gpu_peak_source": "processes"})
    found = judge(one, other, rules)
    assert found.verdict == "NO-GO"
    assert check(found, "gpu_peak").difference == pytest.approx(0.25)
    speeds(other, memory={"gpus": 1, "gpu_peak": 40 * 2**30, "gpu_peak_source": "device"})
    assert "measured in different ways" in check(judge(one, other, rules), "gpu_peak").why
    speeds(other, memory=None)
    assert "no value in the candidate" in check(judge(one, other, rules), "gpu_peak").why


positive = st.floats(min_value=1e-3, max_value=1e6)


@given(st.lists(positive, min_size=1, max_size=4), st.lists(positive, min_size=1, max_size=4))
def test_a_ratio_lies_within_its_interval_and_turns_round(a: list[float], b: list[float]) -> None:
    one, other = ([MeasuredFigure(x, x * 0.9, x * 1.2) for x in some] for some in (a, b))
    found, back = ratio("e2e_p50", one, other), ratio("e2e_p50", other, one)
    assert None not in (found.ratio, found.low, found.high, back.ratio, back.low, back.high)
    assert found.low <= found.ratio * (1 + 1e-9)  # type: ignore[operator]
    assert found.ratio <= found.high * (1 + 1e-9)  # type: ignore[operator]
    assert math.isclose(found.ratio * back.ratio, 1, rel_tol=1e-9)  # type: ignore[operator]
    assert math.isclose(found.low * back.high, 1, rel_tol=1e-6)  # type: ignore[operator]


def test_runs_that_differ_widen_the_interval() -> None:
    tight = [MeasuredFigure(100, 99, 101)]
    once = ratio("e2e_p50", tight, tight).high
    spread = ratio(
        "e2e_p50", [MeasuredFigure(100, 99, 101), MeasuredFigure(120, 119, 121)], tight
    ).high
    assert once is not None
    assert spread is not None
    assert spread > once
    bare = ratio("gpu_peak", [MeasuredFigure(1)], [MeasuredFigure(2)])
    assert (bare.ratio, bare.low, bare.high) == (pytest.approx(2), None, None)


# --- rules and the verdict -----------------------------------------------------------------------------


def test_the_rule_that_says_most_precisely_what_it_is_for_counts() -> None:
    rules = {"*": 1, "anls": 2, "vqa*:*": 3, "kie:anls": 4, "kie*:anls": 5, "a*": 6}
    assert rule_for(rules, "kie", "anls") == 4
    assert rule_for(rules, "kie-1", "anls") == 5
    assert rule_for(rules, "vqa-1", "anls") == 3
    assert rule_for(rules, "ocr", "anls") == 2
    assert rule_for(rules, "ocr", "accuracy") == 1
    assert rule_for({"vqa*:*": 3}, "ocr", "wer") is None


words = st.sampled_from(["pass", "fail", "inconclusive"])
levels = st.sampled_from(["critical", "advisory"])


@given(st.lists(st.tuples(words, levels), max_size=6))
def test_go_means_that_every_critical_check_passed(made: list[Any]) -> None:
    checks = [Check("rt", "m", "quality", level, word, "w") for word, level in made]
    found = decide("a", "b", policy(), checks)
    critical = [one.verdict for one in checks if one.level == "critical"]
    if "fail" in critical:
        assert found.verdict == "NO-GO"
    elif critical and set(critical) == {"pass"}:
        assert found.verdict == "GO"
    else:
        assert found.verdict == "INCONCLUSIVE"
    assert found.reasons


# --- the verb ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_exit_code_is_the_verdict(tmp_path: Path, cli: Cli) -> None:
    ended(tmp_path, "20261101-0200-x-aaaa")
    lenient = tmp_path / "lenient.yaml"
    lenient.write_text("schema_version: 1\nname: lenient\nmetrics: {'*': {absolute: 0.1}}\n")
    words = ["--baseline", "20261101", "--policy", str(lenient)]
    for tail, answers, code in (("b", {}, 0), ("c", wrong(*range(30)), 4), ("d", wrong(1, 2), 5)):
        here = ended(tmp_path, f"20261102-0200-x-{tail}", answers)
        printed = cli("gate", here.id, *words, code=code)
        reported = json.loads(here.verdict_file.read_text())
        assert reported["verdict"] in printed
        assert reported["candidate"] == here.id
        assert cli.json("gate", here.id, *words, "--json", code=code) == reported


def test_a_policy_is_checked_like_any_definition(tmp_path: Path, cli: Cli) -> None:
    ended(tmp_path, "20261101-0200-x-aaaa")
    ended(tmp_path, "20261102-0200-x-aaaa")
    file = tmp_path / "strict.yaml"
    words = ["gate", "20261102", "--baseline", "20261101", "--policy", str(file)]
    for text, said in (
        ("metrics:\n  anl: {absolute: 0.1}\n", "unknown metric 'anl' (did you mean 'anls'?)"),
        ("metrics:\n  anls: {}\n", "needs 'absolute' or 'relative'"),
        ("speed:\n  e2e_p94: {relative: 0.1}\n", "did you mean 'e2e_p9"),
        ("speed:\n  'x*': {relative: 0.1}\n", "no figure of speed matches 'x*'"),
        ("metrics:\n  anls: {absolute: -1}\n", "greater than 0"),
    ):
        file.write_text(f"schema_version: 1\nname: strict\n{text}")
        err = cli.err(*words)
        assert said in err
        assert err.startswith(f"{file}:4:")
    file.write_text("schema_version: 1\nname: strict\nmetrics:\n  'exact*': {absolute: 0.1}\n")
    assert main(words) == 0
    assert "did you mean 'default'" in cli.err(*words[:-1], "defualt")


def test_a_dry_run_writes_no_verdict(tmp_path: Path) -> None:
    ended(tmp_path, "20261101-0200-x-aaaa")
    here = ended(tmp_path, "20261102-0200-x-aaaa")
    assert main(["gate", here.id, "--baseline", "20261101", "--dry-run"]) == 5
    assert not here.verdict_file.exists()
