"""Scores that `hpcbench score --save` stored: compared, judged and reported like an experiment's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment, find, find_scored
from tests.unit.command import Cli
from tests.unit.evaluation.scene import HERE, asked, strange
from tests.unit.small import describe

SECOND = "20261120-1500-plan-bbbb"


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Experiment, Experiment]:
    """Two evaluated experiments over one dataset; only the second has an answer with a digit and a sign."""
    monkeypatch.chdir(tmp_path)
    made = []
    for folder, answers in (("other", ["0", "x", "y"]), (".", ["0", "1.", "y"])):
        here = asked(tmp_path / folder, [*answers], strange("Mean"))
        describe(here)
        evaluate(here)
        made.append(here)
    first = made[0].path.rename(made[1].path.with_name(SECOND))
    return made[1], Experiment(first)


def registry(folder: Path, plugin: str, **options: Any) -> Path:
    """A registry that defines the metric `mean` again."""
    (folder / "metrics").mkdir(parents=True, exist_ok=True)
    definition = {
        "schema_version": 1,
        "name": "mean",
        "plugin": f"{HERE}.{plugin}",
        "options": options,
    }
    (folder / "metrics/mean.yaml").write_text(json.dumps(definition))
    return folder


def said(cli: Cli, *words: str, code: int = 0) -> Any:
    reported = cli.both(*words, code=code)
    return (
        json.loads(reported.out) if "--json" in words and not code else reported.out + reported.err
    )


def rescored(cli: Cli, both: tuple[Experiment, Experiment], folder: Path) -> tuple[str, str]:
    """Both experiments, scored by a corrected definition that ignores signs."""
    corrected = registry(folder / "corrected", "Digits")
    for one in both:
        reported = said(
            cli, "score", one.id, "--metrics", "mean", "--registry", str(corrected), "--save", "new"
        )  # fmt: skip
        assert "mean: as corrected/metrics/mean.yaml defines it, not the plan" in reported.replace(
            f"{folder}/", ""
        )
        assert f"hpcbench compare {one.id}/rescored/new OTHER/rescored/new" in reported
    return f"{both[0].id}/rescored/new", f"{both[1].id}/rescored/new"


def test_two_experiments_are_compared_by_stored_scores(
    both: tuple[Experiment, Experiment], tmp_path: Path, cli: Cli
) -> None:
    names = rescored(cli, both, tmp_path)
    found = said(cli, "compare", *names, "--json")
    assert [found["baseline"]["id"], found["candidates"][0]["id"]] == [*names]
    (one,) = found["candidates"][0]["compared"]
    assert (one["metric"], one["signature"]) == ("mean", "digits|factor:1|v1")
    assert (one["comparison"]["baseline"], one["comparison"]["candidate"]) == (
        pytest.approx(2 / 3), pytest.approx(1 / 3),
    )  # fmt: skip
    own = said(cli, "compare", both[0].id, both[1].id, "--json")["candidates"][0]["compared"][0]
    assert own["comparison"]["baseline"] == pytest.approx(1 / 3), "its own scores stay as they were"
    path = f"{both[0].path}/rescored/new/"
    assert said(cli, "compare", path, names[1], "--json")["baseline"]["id"] == names[0]


@pytest.mark.long
def test_scores_of_different_definitions_are_not_mixed(
    both: tuple[Experiment, Experiment], tmp_path: Path, cli: Cli
) -> None:
    names = rescored(cli, both, tmp_path)
    reported = said(cli, "compare", both[0].id, names[1], code=2)
    assert (
        "'mean' is mean|factor:1|v1 in the baseline and digits|factor:1|v1 in the candidate"
        in reported
    )
    assert "compare EXPERIMENT/rescored/NAME" in reported
    for one in both:
        said(cli, "score", one.id, "--metrics", "mean", "--save", "same")
    found = said(cli, "compare", both[0].id, f"{both[1].id}/rescored/same", "--json")
    (careful,) = found["candidates"][0]["careful"]
    assert careful.startswith(
        f"{both[1].id}/rescored/same was scored again, and {both[0].id} was not"
    )


@pytest.mark.long
def test_reports_and_gates_take_stored_scores_and_write_beside_them(
    both: tuple[Experiment, Experiment], tmp_path: Path, cli: Cli
) -> None:
    names = rescored(cli, both, tmp_path)
    metrics = said(cli, "report", names[0], "--json")
    assert metrics["run_tasks"]["rt"]["metrics"]["mean"]["value"] == pytest.approx(2 / 3)
    assert not (both[0].path / "report").exists()
    assert (both[0].path / "rescored/new/report/report.md").is_file()
    said(cli, "gate", names[1], "--baseline", names[0], "--json", code=5)
    verdict = json.loads((both[1].path / "rescored/new/report/verdict.json").read_text())
    assert (verdict["baseline"], verdict["candidate"]) == names


def test_wrong_names_are_one_line_with_a_remedy(
    both: tuple[Experiment, Experiment], tmp_path: Path, cli: Cli
) -> None:
    names = rescored(cli, both, tmp_path)
    reported = said(cli, "compare", f"{both[0].id}/rescored/nee", names[1], code=2)
    assert f"unknown stored scores 'nee' of {both[0].id} (did you mean 'new'?)" in reported
    reported = said(cli, "resume", names[0], code=2)
    assert f"give {both[0].id}; compare, gate and report take stored scores" in reported
    assert find(tmp_path, both[0].id) == both[0]
    assert find_scored(tmp_path, both[0].id) == both[0]
    (both[0].path / "rescored/new/scored.json").unlink()
    reported = said(cli, "compare", *names, code=2)
    assert "does not say how it was scored" in reported
    assert f"hpcbench score {both[0].id} --save new" in reported


def test_the_registry_that_the_user_names_wins_and_the_result_says_so(
    both: tuple[Experiment, Experiment], tmp_path: Path, cli: Cli
) -> None:
    corrected = registry(tmp_path / "corrected", "Digits")
    words = ("score", both[0].id, "--metrics", "mean", "--json")
    found = said(cli, *words)
    assert (found["definitions"], found["rows"][0]["signature"]) == (
        {"mean": "as the plan defines it"}, "mean|factor:1|v1",
    )  # fmt: skip
    found = said(cli, *words, "--registry", str(corrected))
    assert (found["definitions"], found["rows"][0]["signature"]) == (
        {"mean": f"as {corrected}/metrics/mean.yaml defines it, not the plan"}, "digits|factor:1|v1",
    )  # fmt: skip
    registry(tmp_path / "registries", "Mean", factor=0.5)  # the project's own: it was not named
    found = said(cli, *words)
    assert found["rows"][0]["signature"] == "mean|factor:1|v1"
    assert found["definitions"]["mean"] == (
        "as the plan defines it; registries/metrics/mean.yaml has changed since, "
        "and --registry registries uses it"
    )
    found = said(cli, *words, "--registry", "registries")
    assert found["rows"][0]["signature"] == "mean|factor:0.5|v1"
