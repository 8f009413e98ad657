"""The gate where others call it: at the end of an experiment, by cron, and through the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench import finalise
from hpcbench.cli import regress as verb
from hpcbench.cli.main import main
from hpcbench.comparison import history
from hpcbench.errors import UserError
from hpcbench.experiment.baselines import name_it
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json
from hpcbench.registry.resolve import load_gate, load_plan
from hpcbench.schema.plan import ResolvedPlan
from tests.conftest import ROOT
from tests.unit.command import Cli
from tests.unit.comparison.judged import answered, ended, policy, started, the_plan, wrong
from tests.unit.comparison.test_regress import Nights, nights

__all__ = ["nights"]

DEMO = ROOT / "examples/demo/plan.yaml"


def without_report(root: Path, **more: Any) -> ResolvedPlan:
    plan = the_plan(root)
    changed = {"stages": ("inference", "evaluation"), **more}
    return plan.model_copy(update={"plan": plan.plan.model_copy(update=changed)})


def with_gate(root: Path, baseline: str = "main") -> ResolvedPlan:
    plan = without_report(root, baseline=baseline, gate="test")
    return plan.model_copy(update={"gate": policy()})


def concluded(here: Experiment) -> Experiment:
    """As the last job of a round leaves it."""
    here.outcome_file.unlink()
    here.metrics_file.unlink()
    here.performance_file.unlink()
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[])
        log.write("handed")
    finalise.conclude(here)
    return here


def test_an_experiment_whose_plan_names_both_is_judged_at_its_end(tmp_path: Path) -> None:
    name_it(tmp_path, "main", ended(tmp_path, "20261101-0200-x-aaaa").id)
    here = concluded(answered(started(tmp_path, "e2", with_gate(tmp_path)), wrong(*range(30))))
    assert read_json(here.verdict_file)["verdict"] == "NO-GO"
    assert read_json(here.outcome_file)["state"] == "done"
    (found,) = history.trends(tmp_path, "exact_match")
    assert len(found.points) == 1


def test_a_gate_that_cannot_judge_fails_no_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = concluded(answered(started(tmp_path, "e2", with_gate(tmp_path, "nowhere"))))
    assert read_json(here.outcome_file)["state"] == "done"
    assert not here.verdict_file.exists()
    assert (
        "gate test could not judge the experiment: no experiment 'nowhere'"
        in capsys.readouterr().err
    )


def test_a_history_that_cannot_be_written_fails_no_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").write_text("in the way")
    here = concluded(answered(started(tmp_path, "e2", without_report(tmp_path))))
    assert read_json(here.outcome_file)["state"] == "done"
    assert "could not add the experiment to the history" in capsys.readouterr().err


# --- plans that name a gate ----------------------------------------------------------------------------


def plan_with(root: Path, **more: Any) -> Path:
    reported = yaml.safe_load(DEMO.read_text())
    path = root / "plan.yaml"
    path.write_text(yaml.safe_dump({**reported, **more}))
    return path


def test_a_plan_brings_its_policy_and_needs_a_baseline(tmp_path: Path) -> None:
    found = load_plan(plan_with(tmp_path, gate="default", baseline="main"))
    assert found.gate is not None
    assert "gates/default" in found.origins
    with pytest.raises(UserError, match="a gate needs a 'baseline'"):
        load_plan(plan_with(tmp_path, gate="default"))
    with pytest.raises(UserError, match=r"plan.yaml:\d+:\d+: unknown gate 'defualt'"):
        load_plan(plan_with(tmp_path, gate="defualt", baseline="main"))


def test_the_policy_that_the_page_shows_is_one(tmp_path: Path) -> None:
    text = (DEMO.parents[2] / "docs/gate.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "strict.yaml").write_text(block)
    found = load_gate(str(tmp_path / "strict.yaml"))
    assert found.confirm == 2
    assert load_gate("default").metrics["*"].level == "critical"


# --- hpcbench regress ----------------------------------------------------------------------------------


@pytest.fixture
def command(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> list[str]:  # noqa: F811
    """The verb, with the cluster of `Nights` behind it."""
    monkeypatch.setattr(verb, "load_with_packages", lambda *_, **__: (nights.plan, None))
    monkeypatch.setattr(verb, "prepared_once", lambda plan, *_: nights._prepare(plan))
    monkeypatch.setattr(verb, "submit_first", nights._submit)
    monkeypatch.setattr(verb, "follow", lambda here, **_: nights.follow(here))
    monkeypatch.setattr(verb, "PAUSE", 0)
    return ["regress", "plan.yaml", "--baseline", "main"]


@pytest.mark.long
def test_its_exit_code_gives_its_state(
    nights: Nights,  # noqa: F811
    command: list[str],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verb, "load_gate", lambda *_: policy())
    assert "no baseline 'main'" in cli.err(*command)
    name_it(nights.root, "main", ended(nights.root, "20251231-0200-plan-zzzz").id)
    for answers, code, word in (({}, 0, "GO"), (wrong(*range(30)), 4, "NO-GO"),
                                (wrong(1, 2), 5, "INCONCLUSIVE")):  # fmt: skip
        assert "submitted" in cli(*command)
        assert "still running" in cli(*command)
        nights.all_end(answers)
        assert f"{word}: 2026" in cli(*command, code=code)
    assert main(command) == 0
    nights.ends(state="lost")
    assert "has no scores to judge" in cli(*command, code=1)


def test_it_can_wait_for_its_verdict_and_tell_it_to_programs(
    nights: Nights,  # noqa: F811
    command: list[str],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verb, "load_gate", lambda *_: policy())
    cli(*command, "--set-baseline-if-none", "--wait")
    reported = cli.json(*command, "--wait", "--json")
    assert (reported["state"], reported["verdict"]["verdict"]) == ("judged", "GO")
    assert len(nights.submitted) == 2


@pytest.mark.long
def test_waiting_it_follows_what_runs_and_not_what_has_ended(
    nights: Nights,  # noqa: F811
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name_it(nights.root, "main", ended(nights.root, "20251231-0200-plan-zzzz").id)
    strict = policy(confirm=2)
    monkeypatch.setattr(verb, "load_gate", lambda *_: strict)
    nights.answers = wrong(*range(30))
    assert main([*command, "--wait"]) == 4
    assert nights.followed == nights.submitted
    assert len(nights.followed) == 3


def test_a_plan_without_a_baseline_has_to_be_given_one(command: list[str], cli: Cli) -> None:
    assert "--baseline NAME" in cli.err(*(command[:2]))


# --- cron ----------------------------------------------------------------------------------------------


def test_cron_may_run_it_each_night(tmp_path: Path, cli: Cli) -> None:
    words = ["cron", "install", str(DEMO), "--at", "0 2 * * *", "--dry-run"]
    assert "no baseline 'main'" in cli.err(*words, "--regress", "main")
    assert main([*words, "--policy", "default"]) == 2
    cli(*words, "--regress", "main", "--set-baseline-if-none", "--policy", "nowhere", code=2)
    out = cli(*words, "--regress", "main", "--set-baseline-if-none", "--set", "seed=3")
    line = 'regress "$1" --next --baseline=main --set-baseline-if-none --set=seed=3 >>'
    assert line in out
    assert 'submit "$1" --if-idle >>' in cli(*words)
