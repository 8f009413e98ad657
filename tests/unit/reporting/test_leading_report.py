"""The verdict says who leads only where that is more than chance, and says so where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcbench.experiment.view.metrics_json import Scores, metrics_of
from hpcbench.files.atomic import write_json
from hpcbench.reporting.gather import gather, matrices
from hpcbench.reporting.leaderboard import leaders
from hpcbench.testing import VERDICT
from tests.unit.reporting.many import answered

COUNT = 60


def some_right(count: int, right: int) -> list[str | None]:
    return [str(n) if n < right else "wrong" for n in range(count)]


def test_a_clear_lead_is_called_one_and_reported_with_its_difference(tmp_path: Path) -> None:
    here = answered(tmp_path, {"good": some_right(COUNT, 55), "bad": some_right(COUNT, 20)})
    (sentence,) = gather(here)["summary"]
    assert sentence.startswith("On d, org/good leads with exact_match 0.917 [")
    assert (
        "ahead of org/bad by more than chance: the difference to org/bad is +0.583 [+" in sentence
    )


def test_what_may_be_chance_cannot_be_distinguished(tmp_path: Path) -> None:
    here = answered(tmp_path, {"one": some_right(COUNT, 41), "other": some_right(COUNT, 40)})
    (sentence,) = gather(here)["summary"]
    assert "org/one has the best exact_match, 0.683 [" in sentence
    assert "but cannot be distinguished from org/other (0.667)" in sentence
    assert "leads" not in sentence


def test_a_lower_error_leads(tmp_path: Path) -> None:
    wrong: list[str | None] = ["0000"] * COUNT
    tasks = {name: {"metrics": ("cer",), "plugin": "ocr"} for name in ("good", "bad")}
    here = answered(tmp_path, {"bad": wrong, "good": some_right(COUNT, COUNT)}, tasks=tasks)
    (leader,) = gather(here)["leaders"]
    assert (leader["model"], leader["higher_is_better"]) == ("org/good", False)
    assert leader["rivals"][0]["verdict"] == "behind"


def test_one_model_alone_is_reported_without_a_claim(tmp_path: Path) -> None:
    answers: list[str | None] = [*some_right(COUNT, 30)]
    answers[-6:] = [None] * 6
    here = answered(tmp_path, {"only": answers})
    (sentence,) = gather(here)["summary"]
    assert sentence.startswith("org/only reaches exact_match 0.500 [")
    assert sentence.endswith("Only 90.0 % of samples on d are ok.")


def test_run_tasks_whose_answers_two_versions_have_read_have_no_leader(tmp_path: Path) -> None:
    here = answered(tmp_path, {"good": some_right(COUNT, 55), "bad": some_right(COUNT, 20)})
    tables = dict(metrics_of(here).run_tasks)
    (leader,) = leaders(here, tables, ["good", "bad"])
    assert leader["run_task"] == "good"
    before = tables["bad"].to_json()
    del before["metrics"]["exact_match"]["reading"]  # as of before versions were named
    tables["bad"] = Scores.model_validate(before)
    assert leaders(here, tables, ["good", "bad"]) == []


def test_of_repeats_the_first_stands_for_all(tmp_path: Path) -> None:
    """The best of several repeats would be the luckiest one."""
    same = {"model": {"name": "org/same"}}
    tasks = {
        f"rt-r{n}": {**same, "generation": {"seed": n}, "on_failed": "zero"} for n in (1, 2, 3)
    }
    answers = {f"rt-r{n}": some_right(COUNT, 20 + 10 * n) for n in (1, 2, 3)}
    here = answered(tmp_path, answers, tasks=tasks)
    (leader,) = gather(here)["leaders"]
    assert (leader["run_task"], leader["rivals"]) == ("rt-r1", [])


def test_of_many_datasets_leaders_are_counted() -> None:
    from hpcbench.reporting.leaderboard import sentences

    rival: Any = {"run_task": "b", "model": "B", "value": 0.1, "verdict": "behind", "low": 0.1,
                  "high": 0.2, "difference": 0.1, "p": 0.001, "why": ""}  # fmt: skip
    tied: Any = {**rival, "verdict": "cannot be told apart"}
    one: Any = {"ml_task": "vqa", "split": None, "metric": "anls", "run_task": "a", "model": "A",
                "value": 0.2, "low": 0.1, "high": 0.3, "coverage": 1.0, "higher_is_better": True}  # fmt: skip
    found = [{**one, "dataset": f"d{n}", "rivals": [rival if n < 2 else tied]} for n in range(5)]
    (sentence,) = sentences(found, None)
    assert sentence == (
        "A has the best value on 5 of 5 datasets; on 2 of them it is ahead of every compared rival by "
        "more than chance."
    )


def test_a_run_task_that_cannot_be_compared_says_why(tmp_path: Path) -> None:
    here = answered(tmp_path, {"good": some_right(COUNT, 55), "bad": some_right(COUNT, 20)})
    here.scores_file("bad").unlink()
    tables = metrics_of(here).run_tasks
    (leader,) = leaders(here, tables, list(tables))
    (rival,) = leader["rivals"]
    assert rival["verdict"] == "not compared"
    assert "no scores" in rival["why"]


def test_a_gate_speaks_first(tmp_path: Path) -> None:
    here = answered(tmp_path, {"good": some_right(COUNT, 55), "bad": some_right(COUNT, 20)})
    write_json(here.verdict_file, VERDICT)
    tables = gather(here)
    assert tables["summary"][0].startswith("NO-GO: against the baseline 20251231-1200-example-aaaa")
    assert tables["summary"][1] == "vqa anls: worse by more than the margin."
    assert tables["verdict"] is not None
    assert tables["baseline"] is not None
    assert tables["baseline"]["differences"] is None, "that baseline is not there"


def test_a_damaged_verdict_is_reported_and_harms_nothing(tmp_path: Path) -> None:
    here = answered(tmp_path, {"good": some_right(COUNT, 55)})
    for text in ('{"version": 1}', "{", "[]"):
        here.report_dir.mkdir(exist_ok=True)
        here.verdict_file.write_text(text)
        tables = gather(here)
        assert tables["verdict"] is None
        assert tables["summary"][0].startswith(
            "The verdict of the gate cannot be read: verdict.json: "
        )


def test_a_matrix_has_a_row_a_model_and_tells_prompts_apart() -> None:
    def reported(model: str, dataset: str, prompt: str, value: float | None) -> Scores:
        entry = None
        if value is not None:
            entry = {"value": value, "low": None, "high": None, "n": 1, "clusters": 1,
                     "higher_is_better": True}  # fmt: skip
        return Scores.model_validate(
            {"ml_task": "vqa", "model": model, "dataset": dataset, "split": None, "prompt": prompt,
             "asked": 1, "answered": 1, "metrics": {"anls": entry}}
        )  # fmt: skip

    run_tasks = {
        "a-d": reported("A", "d", "p", 0.5), "a-d2": reported("A", "d", "q", 0.6),
        "a-e": reported("A", "e", "p", 0.7), "b-e": reported("B", "e", "p", 0.8),
        "b-d": reported("B", "d", "p", None),
    }  # fmt: skip
    (matrix,) = matrices(run_tasks, list(run_tasks))
    rows = {(row["model"], row["variant"]): row["cells"] for row in matrix["rows"]}
    assert list(rows) == [("A", "p"), ("A", "q"), ("A", ""), ("B", "")]
    assert [cell and cell["leads"] for cell in rows["B", ""]] == [False, True]
    assert [cell and cell["leads"] for cell in rows["A", "q"]] == [True, None]
    assert rows["B", ""][0]["value"] is None
