"""Judges: plans that name them, labels, and what verdicts and labels say together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import UserError
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.control import control_state
from hpcbench.experiment.layout import Experiment
from hpcbench.judging.labels import keep_labels, matched, read_labels
from hpcbench.judging.rated_answers import JudgedAnswers, waits_for
from hpcbench.judging.verdict_summary import summarise
from hpcbench.metrics.judge import Judge
from hpcbench.planning import plan_work
from hpcbench.prompts import TaskPrompt
from hpcbench.reporting.sections.judges import judges
from hpcbench.reporting.sections.quality import scores
from hpcbench.reporting.writing import report
from hpcbench.schema.records import Sample
from tests.unit.command import Cli
from tests.unit.court import Court
from tests.unit.registries import PLAN, Files
from tests.unit.small import (
    describe,
    measured,
    record,
    resolved,
    run_task,
    submitted,
    write_dataset,
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.delenv("RUN_MODE", raising=False)
    monkeypatch.chdir(tmp_path)
    made = Files(tmp_path)
    made.write("prompts/rubric.yaml", "name: rubric\nuser: '{{ question }} {{ answer }}'\n")
    made.write(
        "prompts/pairs.yaml", "name: pairs\nuser: '{{ first }} {{ second }} {{ reference }}'\n"
    )
    return made


def judge(**fields: Any) -> str:
    """The plan of `first` with a judge of it, whose settings are on one line each."""
    settings = {
        "name": "judged", "ml_task": "judge_binary", "model": "org/tiny", "dataset": "pages",
        "prompt": "rubric", "judge": {"of": "first"}, **fields,
    }  # fmt: skip
    lines = [f"{key}: {json.dumps(value)}" for key, value in settings.items()]
    return f"{PLAN}  - " + "\n    ".join(lines) + "\n"


# --- plans ----------------------------------------------------------------------------------------------


def test_a_judge_comes_after_the_run_task_it_rates_and_asks_about_its_samples(files: Files) -> None:
    plan = files.resolved(judge() + "limit: 7\n")
    first, judged = plan.run_tasks
    assert judged.task.after == ("first",)
    assert judged.task.limit == first.task.limit == 7
    assert judged.task.on_failed == "exclude"
    work = plan_work(plan, measured(plan))
    assert [(group.run_tasks, group.after) for group in work.groups] == [
        (("first",), ()),
        (("judged",), ("g0",)),
    ]


def test_repeats_of_a_judge_of_pairs_show_both_orders(files: Files) -> None:
    other = "  - {name: second, ml_task: vqa, model: org/tiny, dataset: pages, prompt: ask}\n"
    text = judge(
        ml_task="judge_pairwise", prompt="pairs", repeats=2,
        judge={"of": "first", "against": "second", "pages": False},
    )  # fmt: skip
    plan = files.resolved(text + other)
    votes = [plan.run_task(name) for name in ("judged-r1", "judged-r2")]
    assert [one.swapped for one in votes] == [False, True]
    assert [one.metrics[0].options.get("swapped") for one in votes] == [None, True]
    assert votes[1].task.after == ("first", "second")
    sample = Sample("s", (Path("page.png"),), {"question": "?"}, ("42",), "d")
    texts = [TaskPrompt(one).build(sample, ("mine", "theirs")) for one in votes]
    assert [one[-1].text for one in texts] == ["mine theirs 42", "theirs mine 42"]
    assert all(message.images == () for one in texts for message in one)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"judge": {"of": "frist"}},
         "unknown run task 'frist' of this plan (did you mean 'first'?)"),
        ({"judge": {"of": "judged"}}, "unknown run task 'judged' of this plan"),
        ({"judge": {"of": "first", "against": "first"}, "ml_task": "judge_pairwise", "prompt": "pairs",
          "repeats": 2}, "compares 'first' with itself"),
        ({"judge": {"of": "first", "against": "first"}, "ml_task": "judge_pairwise", "prompt": "pairs"},
         "it must show each pair equally often in both orders (write `repeats: 2`)"),
        ({"on_invalid": "zero"}, "cannot count as 0"),
        ({"on_failed": "zero"}, "cannot count as 0"),
        ({"limit": 3}, "a judge asks about the samples of 'first', so it has no `limit` of its own"),
        ({"load": {"concurrency": [1]}}, "a judge cannot have `load`"),
        ({"agent": True}, "a judge cannot have `agent`"),
        ({"ml_task": "vqa"}, "ML task 'vqa' reads no verdicts"),
        ({"judge": None}, "rates the answers of another run task (add `judge: {of: RUN_TASK}`)"),
        ({"ml_task": "judge_pairwise", "prompt": "rubric"}, "is for verdicts on pairs (add `against:"),
        ({"prompt": "ask"}, "rubric 'ask' does not show the judge {{ answer }}"),
        ({"prompt": "broken"}, "is not a valid Jinja2 template"),
    ],
)  # fmt: skip
def test_a_wrong_judge_is_one_clear_line(files: Files, fields: dict[str, Any], said: str) -> None:
    files.write("prompts/broken.yaml", "name: broken\nuser: '{{ answer }'\n")
    text = judge(**fields).replace("    judge: null\n", "")
    found = files.refusal(text)
    assert any(said in one for one in found), found
    assert all(one.startswith(("p.yaml:", "registry/")) for one in found)


def test_a_judge_of_a_run_task_with_repeats_or_left_out_by_only_is_refused(files: Files) -> None:
    several = judge().replace("prompt: ask\n", "prompt: ask\n    repeats: 2\n", 1)
    assert any("'first' is 2 run tasks" in one for one in files.refusal(several))
    (line, *_) = files.refusal(judge() + "only: [judged]\n")
    assert "judge 'judged' rates 'first', which `only` leaves out" in line


def test_ab_has_no_arms_of_judges(files: Files, cli: Cli) -> None:
    plan = files.folder / "p.yaml"
    plan.write_text(judge())
    arms = ["--a", "model.dtype=float32", "--b", "model.dtype=float16"]
    said = cli.err("ab", plan, *arms, "--dry-run", "--registry", files.registry)
    assert "run task 'judged' is a judge, which has no arms" in said


def test_verdicts_that_the_metric_does_not_know_are_refused(files: Files) -> None:
    schema = {
        "type": "object",
        "properties": {"verdict": {"enum": ["good", "bad"]}},
        "required": ["verdict"],
    }
    files.write("ml_tasks/own.yaml", json.dumps({
        "name": "own", "plugin": "judge", "output": "object", "output_schema": schema,
        "metrics": ["judge_binary"], "prompt": "rubric",
    }))  # fmt: skip
    (line,) = files.refusal(judge(ml_task="own"))
    assert "allows the verdict 'good', but metric 'judge_binary' has no value for it" in line


def test_what_verdicts_cost_is_a_metric_of_a_judge(files: Files) -> None:
    plan = files.resolved(judge(metrics=["cost", "judge_binary"]))
    assert [one.name for one in plan.run_tasks[1].metrics] == ["judge_binary", "cost"]
    assert [one.name for one in files.resolved(judge()).run_tasks[1].metrics] == ["judge_binary"]
    lines = files.refusal(judge(metrics=["judge_graded"]))
    assert any("and no metric 'judge_graded'" in line for line in lines)


# --- verdicts as numbers --------------------------------------------------------------------------------


def test_verdicts_have_values_and_others_have_none() -> None:
    assert Judge().score({"verdict": "right"}, ()).numerator == 1
    assert Judge(kind="graded").score({"verdict": 4}, ()).numerator == 0.75
    pairs = Judge(kind="pairwise", swapped=True)
    values = [pairs.score({"verdict": one}, ()).numerator for one in ("first", "tie", "second")]
    assert values == [0.0, 0.5, 1.0]
    for made, said in ((Judge(), "maybe"), (Judge(kind="graded"), 9), (Judge(kind="graded"), True)):
        with pytest.raises(ValueError, match="verdict"):
            made.score({"verdict": said}, ())
    with pytest.raises(ValueError, match="below best"):
        Judge(kind="graded", worst=5, best=1)


# --- labels ---------------------------------------------------------------------------------------------


def test_labels_count_for_the_very_answer_they_quote(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(
        'sample,note,answer,label\ns1,x," 12\r\n",right\ns2,,13,\ns3,,14,Wrong\ns9,,1,right\n'
    )
    found = matched(
        read_labels(path, Judge(), pairs=False), {"s1": ("12",), "s3": ("15",), "s2": (None,)}
    )
    assert (dict(found.values), found.given, found.other_answers, found.unknown) == (
        {"s1": 1.0},
        3,
        1,
        1,
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "sample,label\ns1,right\n", ":2: a label needs sample, answer, label; there is no answer"),
        ("a.csv", "sample,answer,label\ns1,x,yes\n", ":2: label 'yes' is none of right, wrong"),
        ("a.csv", "sample,answer,label\ns1,x,right\ns1,x,wrong\n",
         ":3: a second label for the same answer to sample 's1', after line 2 (keep one of them)"),
        ("a.csv", "sample,answer,label\ns1,x,\n", ": the file has no label"),
        ("a.csv", "sample,answer,label\ns1,x\n", ":2: the row has more or fewer columns"),
        ("a.jsonl", "[1]\n", ":1: not a JSON object"),
        ("a.jsonl", '{"sample": 1', ":1:"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_labels_is_one_clear_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_labels(path, Judge(), pairs=False)
    assert f"{name}{said}" in str(caught.value)


# --- verdicts and labels together -----------------------------------------------------------------------


def names(count: int = 40) -> list[str]:
    return [f"s{number}" for number in range(count)]


def test_a_judge_waits_while_answers_may_still_come(tmp_path: Path) -> None:
    court = Court(tmp_path)
    judged = court.experiment.resolved.run_task("judged")
    court.answer("rt", {name: f"a{name}" for name in names()}, shards=2)
    assert waits_for(court.experiment, judged, control_state(court.experiment)) == "rt"
    court = Court(tmp_path / "whole")
    court.answer(
        "rt", {name: f"<think>hm</think>a{name}" if name != "s3" else None for name in names()}
    )
    assert waits_for(court.experiment, judged, control_state(court.experiment)) == ""
    found = JudgedAnswers(court.experiment, judged).of(0, 5)
    assert {name: one for name, one in found.items() if name in names(5)} == {
        f"s{n}": (f"as{n}",) for n in (0, 1, 2, 4)
    }


def test_unreadable_and_missing_verdicts_are_in_no_value_and_labels_correct_the_rest(
    tmp_path: Path,
) -> None:
    court = Court(tmp_path)
    court.answer("rt", {name: f"a{name}" for name in names()[:-1]} | {"s39": None})
    # Of 40: s39 has no answer, s38 no readable verdict; 30 are called right, 8 wrong; 5 calls are false.
    words: dict[str, str | None] = {
        name: "right" if n < 30 else "wrong" for n, name in enumerate(names())
    }
    court.verdicts(words | {"s38": "?", "s39": None})
    metrics = evaluate(court.experiment)
    found = metrics.judges["judged"]
    assert found.naive is not None
    assert (found.naive.value, found.judged, found.unreadable, found.without_answer) == (
        pytest.approx(30 / 38), 38, 1, 1,
    )  # fmt: skip
    assert (found.state, found.why) == ("uncalibrated", "there are no human labels")
    entry = metrics.run_tasks["judged"].metrics["judge"]
    assert entry is not None
    assert (entry.value, entry.calibration) == (pytest.approx(30 / 38), "uncalibrated")
    truth = {name: "right" if 5 <= n < 30 else "wrong" for n, name in enumerate(names()[:38])}
    path = court.labels(tmp_path / "labels.jsonl", truth)
    read_labels(path, Judge(), pairs=False)
    keep_labels(court.experiment, "judged", path)
    found = evaluate(court.experiment).judges["judged"]
    assert found.state == "calibrated"
    assert found.labels["used"] == 38
    for one in (found.powered, found.corrected):
        assert one is not None
        assert one.value == pytest.approx(25 / 38)
        assert one.low is not None and one.high is not None
    assert found.specificity is not None and found.specificity.value == pytest.approx(8 / 13)
    assert found.bias is not None and found.bias.value == pytest.approx(5 / 38)


def test_the_word_uncalibrated_is_beside_the_number_in_the_report(tmp_path: Path) -> None:
    court = Court(tmp_path)
    court.answer("rt", {name: f"a{name}" for name in names()})
    court.verdicts(dict.fromkeys(names(), "right"))
    evaluate(court.experiment)
    tables: Any = {
        "metrics": json.loads(court.experiment.metrics_file.read_text()),
        "matrix": [],
        "distribution": {},
    }
    section = judges(tables)
    assert section is not None
    assert "uncalibrated" in repr(section.blocks)
    assert "gave the same verdict to all 40 answers" in repr(section.parts)
    assert "1.000 uncalibrated" in repr(scores(tables))


@pytest.mark.long
def test_labels_that_are_kept_correct_the_reports_that_are_there(tmp_path: Path, cli: Cli) -> None:
    court = Court(tmp_path)
    describe(court.experiment)
    court.answer("rt", {name: f"a{name}" for name in names()})
    court.verdicts({name: "right" if n < 30 else "wrong" for n, name in enumerate(names())})
    truth = {name: "right" if 5 <= n < 30 else "wrong" for n, name in enumerate(names())}
    path = court.labels(tmp_path / "labels.jsonl", truth)
    evaluate(court.experiment)
    check = ["judge", "check", str(court.experiment.path), "--labels", str(path), "--keep"]
    cli(*check)
    assert not court.experiment.report_dir.exists(), "a plan without reports gets none"
    court.experiment.labels_file("judged").unlink()
    evaluate(court.experiment)
    report(court.experiment)
    files = [court.experiment.report_dir / name for name in ("report.md", "report.html")]
    assert all("uncalibrated" in file.read_text() for file in files)
    said = cli.err(*check, code=0)
    assert not any("uncalibrated" in file.read_text() for file in files)
    assert "the plan's reports are written again" in said


def test_labels_of_another_experiment_are_a_finding_and_change_no_value(tmp_path: Path) -> None:
    court = Court(tmp_path)
    court.answer("rt", {name: f"a{name}" for name in names()})
    court.verdicts({name: "right" if n % 3 else "wrong" for n, name in enumerate(names())})
    path = court.labels(tmp_path / "l.jsonl", dict.fromkeys(names(), "right"), answer="another")
    keep_labels(court.experiment, "judged", path)
    found = evaluate(court.experiment).judges["judged"]
    assert found.state == "uncalibrated"
    assert found.powered is None
    assert "40 quote other answers, as labels of another experiment do" in found.findings[0]


def test_length_and_own_family_are_findings(tmp_path: Path) -> None:
    court = Court(tmp_path, model="Qwen", rated="Qwen")
    long = {
        name: f"a{name}" if n % 2 else f"a{name} " + "and so on " * 20
        for n, name in enumerate(names())
    }
    court.answer("rt", long)
    # It calls every long answer right, and is true about the short ones.
    court.verdicts(
        {name: "right" if n % 2 == 0 or n % 3 else "wrong" for n, name in enumerate(names())}
    )
    found = evaluate(court.experiment).judges["judged"]
    assert found.own_family
    assert any("are of one family" in one for one in found.findings)
    rows = [
        {"sample": name, "answer": long[name], "label": "right" if n % 3 else "wrong"}
        for n, name in enumerate(names())
    ]
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keep_labels(court.experiment, "judged", path)
    found = evaluate(court.experiment).judges["judged"]
    assert found.length is not None and found.length.value == pytest.approx(7 / 20)
    assert any("rates long answers 0.35 higher than people do" in one for one in found.findings)


def test_an_experiment_without_judges_does_not_mention_them(tmp_path: Path) -> None:
    plan = resolved(run_task(dataset={"source": str(write_dataset(tmp_path / "d", [record(1)]))}))
    experiment: Experiment = submitted(tmp_path, plan, 1)
    assert evaluate(experiment).judges == {}
    assert "judges" not in json.loads(experiment.metrics_file.read_text())
    assert summarise(experiment, {}) == {}
