"""`hpcbench compare`: what is paired, what is left out, what is refused, and what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt

QUESTIONS = 80
"""Two about each of 40 documents."""


def run(
    folder: Path,
    answers: Mapping[int, str | None],
    references: Mapping[int, str] | None = None,
    **task: Any,
) -> Experiment:
    """An experiment whose answers are right but for these; None: not asked."""
    records = [
        record(n, document=f"doc{n // 2}", references=[(references or {}).get(n, str(n))])
        for n in range(QUESTIONS)
    ]
    here = experiment(folder, records, shard_size=QUESTIONS, **task)
    given = {number: answers.get(number, str(number)) for number in range(QUESTIONS)}
    write_attempt(
        here, 0, 1,
        [response(f"s{number}", text) for number, text in given.items() if text is not None],
        end="drained",
    )  # fmt: skip
    evaluate(here)
    return here


def compared(cli: Cli, one: Experiment, other: Experiment, *words: str) -> Any:
    return reported(cli, one, other, *words)["compared"]


def reported(cli: Cli, one: Experiment, other: Experiment, *words: str) -> Any:
    """The one candidate in the output of `--json`."""
    (candidate,) = cli.json("compare", one.path, other.path, *words, "--json")["candidates"]
    return candidate


def wrong(*numbers: int) -> dict[int, str]:
    return dict.fromkeys(numbers, "nothing of the kind")


@pytest.mark.parametrize(
    ("prompt", "same"), [({}, True), ({"user": "Read: {{ question }}"}, False)]
)
def test_hashes_made_in_two_ways_leave_it_to_the_prompts_themselves(
    cli: Cli, tmp_path: Path, prompt: dict[str, Any], same: bool
) -> None:
    one = run(tmp_path / "a", {})
    other = run(tmp_path / "b", {}, prompt={"description": "told better", **prompt})
    made = ({"prompt_hashes": {"rt": "old"}}, {"prompt_hashes": {"rt": "new"}, "prompt_formula": 2})
    for here, known in zip((one, other), made, strict=True):
        measured = {**here.manifest.measured, **known}
        write_json(here.manifest_file, {**read_json(here.manifest_file), "measured": measured})
    assert ("prompts differ" not in cli("compare", one.path, other.path)) == same


def test_a_run_that_is_better_sample_by_sample_is_better(cli: Cli, tmp_path: Path) -> None:
    old = run(tmp_path / "a", wrong(*range(0, 40)))
    new = run(tmp_path / "b", wrong(*range(0, 10), 70))
    (found,) = compared(cli, old, new)
    what = found["comparison"]
    assert (what["wins"], what["losses"], what["ties"], what["clusters"]) == (30, 1, 49, 40)
    assert what["verdict"] == "better"
    assert what["interval"]["low"] > 0
    (back,) = compared(cli, new, old)
    assert back["comparison"]["verdict"] == "worse"


def test_equal_runs_are_equivalent_only_within_a_margin_that_was_stated(
    cli: Cli, tmp_path: Path
) -> None:
    one, other = run(tmp_path / "a", wrong(1, 7)), run(tmp_path / "b", wrong(1, 7))
    (found,) = compared(cli, one, other)
    assert found["comparison"]["verdict"] == "inconclusive"
    (found,) = compared(cli, one, other, "--margin", "exact_match=0.1")
    assert found["comparison"]["verdict"] == "equivalent"


def test_samples_that_one_has_not_asked_are_compared_only_when_asked_to_leave_them_out(
    cli: Cli, tmp_path: Path
) -> None:
    one, other = run(tmp_path / "a", {3: None}), run(tmp_path / "b", {4: None, 5: None})
    said = cli.err("compare", one.path, other.path)
    assert "only the baseline asked 2 samples, only the candidate 1" in said
    assert "--common compares 77 samples" in said
    (found,) = compared(cli, one, other, "--common")
    assert found["comparison"]["n"] == 77
    printed = cli("compare", one.path, other.path, "--common")
    assert (
        "warning: rt: compared only over the samples that both have asked: only the baseline"
        in printed
    )


def test_another_version_of_the_dataset_is_refused_and_its_changed_references_never_compared(
    cli: Cli, tmp_path: Path
) -> None:
    one, other = run(tmp_path / "a", {}), run(tmp_path / "b", {7: "seven"}, references={7: "seven"})
    for here, version in ((one, "1"), (other, "2")):
        of_dataset(here, version)
    one, other = Experiment(one.path), Experiment(other.path)
    said = cli.err("compare", one.path, other.path)
    assert "the datasets' files differ; 1 samples have different references" in said
    (found,) = compared(cli, one, other, "--common")
    assert found["comparison"]["n"] == QUESTIONS - 1


def of_dataset(here: Experiment, version: str) -> None:
    """Say which files the experiment's dataset had."""
    manifest = json.loads(here.manifest_file.read_text())
    manifest["measured"]["dataset_hashes"] = {"rt": f"sha256:{version}"}
    here.manifest_file.write_text(json.dumps(manifest))


def failed(folder: Path, answers: Mapping[int, str | None], **task: Any) -> Experiment:
    """As `run`; None: it was asked, and failed."""
    records = [record(number, document=f"doc{number // 2}") for number in range(QUESTIONS)]
    here = experiment(folder, records, shard_size=QUESTIONS, **task)
    given = [response(f"s{n}", answers.get(n, str(n))) for n in range(QUESTIONS)]
    write_attempt(here, 0, 1, given)
    evaluate(here)
    return here


def test_a_sample_that_failed_counts_as_its_run_task_says(cli: Cli, tmp_path: Path) -> None:
    lost = dict.fromkeys(range(20))
    one, other = failed(tmp_path / "a", {}), failed(tmp_path / "b", lost)
    (found,) = compared(cli, one, other)
    assert (found["comparison"]["n"], found["comparison"]["losses"]) == (80, 20)
    assert found["comparison"]["verdict"] == "worse"
    assert found["if_worst"] is None


def test_what_is_left_out_is_reported_with_the_verdict_it_could_have_made(
    cli: Cli, tmp_path: Path
) -> None:
    lost = dict.fromkeys(range(20))
    one = failed(tmp_path / "a", {}, on_failed="exclude")
    other = failed(tmp_path / "b", lost, on_failed="exclude")
    (found,) = compared(cli, one, other)
    what = found["comparison"]
    assert (what["n"], what["only_baseline"], what["only_candidate"]) == (60, 20, 0)
    assert (what["verdict"], found["if_worst"]) == ("inconclusive", "worse")
    out = cli("compare", one.path, other.path)
    assert "left out 20 samples that only the baseline has scored, and 0" in out
    assert "worse if the samples left out counted as the worst" in out
    assert "coverage differs: 100.0 % and 75.0 %" in out


@pytest.mark.long
def test_a_metric_of_sums_is_compared_as_a_whole(cli: Cli, tmp_path: Path) -> None:
    metrics = ("wer", "macro_f1")
    old = run(tmp_path / "a", wrong(*range(0, 40)), metrics=metrics)
    new = run(tmp_path / "b", wrong(*range(0, 4)), metrics=metrics)
    found = {one["metric"]: one["comparison"] for one in compared(cli, old, new)}
    for name in metrics:
        assert found[name]["verdict"] == "better", name
        assert found[name]["p_adjusted"] >= found[name]["p_value"]
    whole = json.loads(new.metrics_file.read_text())["run_tasks"]["rt"]["metrics"]
    assert found["wer"]["candidate"] == pytest.approx(whole["wer"]["value"])
    assert found["macro_f1"]["candidate"] == pytest.approx(whole["macro_f1"]["value"])


def test_an_answer_without_a_value_counts_as_the_worst_in_both_unless_asked(
    cli: Cli, tmp_path: Path
) -> None:
    def objects(folder: Path, answers: Mapping[int, str]) -> Experiment:
        records = [record(n, references=[{"n": str(n)}]) for n in range(QUESTIONS)]
        here = experiment(folder, records, QUESTIONS, plugin="kie", metrics=("kie_f1_macro",))
        given = [
            response(f"s{n}", answers.get(n, json.dumps({"n": str(n)}))) for n in range(QUESTIONS)
        ]
        write_attempt(here, 0, 1, given)
        evaluate(here)
        return here

    one = objects(tmp_path / "a", {})
    other = objects(tmp_path / "b", dict.fromkeys(range(20), "I cannot read it"))
    (zero,) = compared(cli, one, other)
    assert zero["comparison"]["candidate"] == pytest.approx(60 / 80)
    (without,) = compared(cli, one, other, "--counting", "exclude")
    assert without["comparison"]["candidate"] == 1.0
    assert without["comparison"]["only_baseline"] == 20


@pytest.mark.long
def test_another_prompt_is_reported_and_another_metric_of_one_name_refused(
    cli: Cli, tmp_path: Path
) -> None:
    one = run(tmp_path / "a", {})
    other = run(tmp_path / "b", {}, prompt={"user": "Read: {{ question }}"})
    assert "warning: rt: prompts differ" in cli("compare", one.path, other.path)
    for hashes, differ in ((("sha256:1", "sha256:1"), False), (("sha256:1", "sha256:2"), True)):
        for here, known in zip((one, other), hashes, strict=True):
            measured = {**here.manifest.measured, "prompt_hashes": {"rt": known}}
            write_json(here.manifest_file, {**read_json(here.manifest_file), "measured": measured})
        assert ("prompts differ" in cli("compare", one.path, other.path)) == differ
    resolved = json.loads(other.resolved_file.read_text())
    resolved["run_tasks"][0]["metrics"][0]["options"] = {"case": "lower"}
    other.resolved_file.write_text(json.dumps(resolved))
    other = Experiment(other.path)
    evaluate(other)
    assert "case:keep" in cli.err("compare", one.path, other.path)


def test_a_metric_that_changed_is_left_out_and_the_others_are_compared(
    cli: Cli, tmp_path: Path
) -> None:
    metrics = ("exact_match", "anls")
    one, other = (run(tmp_path / name, {}, metrics=metrics) for name in "ab")
    resolved = json.loads(other.resolved_file.read_text())
    resolved["run_tasks"][0]["metrics"][1]["options"] = {"tau": 0.3}
    other.resolved_file.write_text(json.dumps(resolved))
    evaluate(Experiment(other.path))
    found = reported(cli, one, other)
    assert [one["metric"] for one in found["compared"]] == ["exact_match"]
    (refused,) = found["refused"]
    assert refused["metric"] == "anls"
    assert "tau:0.5" in refused["why"]
    assert "tau:0.3" in refused["why"]


def test_one_that_did_not_end_well_is_said_first(cli: Cli, tmp_path: Path) -> None:
    one, other = run(tmp_path / "a", {}), run(tmp_path / "b", wrong(0))
    assert reported(cli, one, other)["ended"] is None
    write_json(other.outcome_file, {"round": 0, "state": "incomplete", "reason": "few are ok"})
    assert reported(cli, one, other)["ended"] == f"{other.id} is incomplete: few are ok"
    printed = cli("compare", one.path, other.path)
    assert printed.startswith(f"warning: {other.id} is incomplete: few are ok\n")
    nothing = run(tmp_path / "c", dict.fromkeys(range(QUESTIONS)))
    write_json(nothing.outcome_file, {"round": 0, "state": "failed", "reason": "no GPU"})
    said = cli.err("compare", one.path, nothing.path)
    assert said.startswith(f"{nothing.id} is failed: no GPU\n")


def test_of_several_candidates_all_p_values_are_corrected_together(
    cli: Cli, tmp_path: Path
) -> None:
    base = run(tmp_path / "a", wrong(*range(20, 50)))
    better, same = run(tmp_path / "b", {}), run(tmp_path / "c", wrong(*range(20, 50)))
    words = [str(one.path) for one in (base, better, same)]
    found = cli.json("compare", *words, "--json")
    assert found["comparisons"] == 2
    first, second = (one["compared"][0]["comparison"] for one in found["candidates"])
    assert (first["verdict"], second["verdict"]) == ("better", "inconclusive")
    assert first["p_adjusted"] == pytest.approx(2 * first["p_value"])
    out = cli("compare", *words)
    assert out.count("exact_match ↑") == 2
    assert "Holm's correction for 2 comparisons" in out
    said = cli.err("compare", words[0], words[1], words[1])
    assert "two candidates are the same experiment" in said


def test_two_run_tasks_are_named_to_be_compared_within_one_experiment(
    cli: Cli, tmp_path: Path
) -> None:
    one = run(tmp_path / "a", {})
    assert "--run-task ONE=OTHER" in cli.err("compare", one.path, one.path)
    said = cli.err("compare", one.path, one.path, "--run-task", "rt=nowhere")
    assert "unknown run task 'nowhere' (there are: rt)" in said


def test_what_has_no_scores_yet_says_how_to_get_them(cli: Cli, tmp_path: Path) -> None:
    one = run(tmp_path / "a", {})
    other = experiment(tmp_path / "b", [record(1)])
    assert "hpcbench score" in cli.err("compare", one.path, other.path, code=1)


def test_scores_of_another_version_or_damaged_ones_say_what_makes_them_again(
    cli: Cli, tmp_path: Path
) -> None:
    import polars

    one, other = run(tmp_path / "a", {}), run(tmp_path / "b", {})
    whole = polars.read_parquet(other.scores_file("rt"))
    for damage in (whole.drop("invalid").write_parquet, lambda path: path.write_bytes(b"PAR1")):
        damage(other.scores_file("rt"))
        said = cli.err("compare", one.path, other.path, code=1)
        assert f"`hpcbench score {other.id}` computes them again" in said
        assert "Traceback" not in said
