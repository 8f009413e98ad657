"""`hpcbench regress`, called as often as one likes: submitted once, judged once, and never stuck."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench import regress as module
from hpcbench.comparison import history
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment import baselines
from hpcbench.experiment.layout import Experiment
from hpcbench.files import lease
from hpcbench.notify import dispatch
from hpcbench.regress import Ask, Regression, Standing, again, regress
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.site import cron
from tests.conftest import ROOT
from tests.unit.comparison.judged import Answers, answered, ended, policy, started, the_plan, wrong
from tests.unit.dying import Dying


class Nights:
    """A fake cluster: experiments are prepared for real, and end when the test says so."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plan = the_plan(root)
        self.policy = policy()
        self.states: dict[str, str] = {}
        self.submitted: list[str] = []
        self.reported: list[dict[str, Any]] = []
        self.failed: list[str] = []
        self.followed: list[str] = []
        self.answers: Answers = {}
        self.said: list[str] = []
        self.options: dict[str, Any] = {}
        self.meanwhile: Callable[[], Any] = lambda: None
        self._lock = threading.Lock()

    def call(self, **options: Any) -> Standing:
        wanted = Regression(
            plan=self.root / "plan.yaml",
            resolved=self.plan,
            policy=self.policy,
            **{"baseline": "main", **self.options, **options},
        )
        return regress(wanted, Ask(self._prepare, self._submit, self.said.append))

    def ends(self, answers: Answers | None = None, state: str = "done") -> Experiment:
        """The newest experiment that runs has ended."""
        (name,) = [name for name, now in self.states.items() if now == "running"][:1]
        return self._ends(name, answers, state)

    def all_end(self, answers: Answers | None = None) -> None:
        for name, now in list(self.states.items()):
            if now == "running":
                self._ends(name, answers, "done")

    def follow(self, experiment: Experiment) -> None:
        """It is followed to its end."""
        self.followed.append(experiment.id)
        self._ends(experiment.id, self.answers, "done")

    def _ends(self, name: str, answers: Answers | None, state: str) -> Experiment:
        here = Experiment(self.root / "experiments" / name)
        if state in ("done", "incomplete"):
            answered(here, answers, state)
        self.states[name] = state
        return here

    def status(self, experiment: Experiment) -> Any:
        return SimpleNamespace(id=experiment.id, state=self.states[experiment.id])

    def _prepare(self, plan: ResolvedPlan) -> Experiment:
        with self._lock:
            name = f"2026{len(self.states):04d}-0200-{plan.plan.name}-aaaa"
            self.states[name] = "interrupted"
        self.meanwhile()
        return started(self.root, name, plan)

    def _submit(self, experiment: Experiment) -> None:
        with self._lock:
            if self.states[experiment.id] == "interrupted":
                self.submitted.append(experiment.id)
                self.states[experiment.id] = "running"

    def tell(self, experiment: Experiment, verdict: Any) -> list[str]:
        """As `tell_verdict`: the same verdict is reported once."""
        if verdict["verdict"] != "GO" and verdict not in self.reported:
            self.reported.append(verdict)
        return []


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    fake = Nights(tmp_path)
    monkeypatch.setattr(cron, "status", fake.status)
    monkeypatch.setattr(module, "status", fake.status)
    monkeypatch.setattr(cron, "due", lambda experiment, now: False)
    monkeypatch.setattr(dispatch, "tell_verdict", fake.tell)
    monkeypatch.setattr(
        dispatch, "tell", lambda here, state, tables: fake.failed.append(here.id) or []
    )
    return fake


@pytest.fixture
def main_is_set(nights: Nights) -> Experiment:
    here = ended(nights.root, "20251231-0200-plan-zzzz")
    baselines.name_it(nights.root, "main", here.id)
    return here


# --- one night after the other -------------------------------------------------------------------------


@pytest.mark.usefixtures("main_is_set")
def test_it_submits_waits_judges_and_begins_again(nights: Nights) -> None:
    first = nights.call()
    assert (first.state, first.exit_code) == ("submitted", 0)
    still = nights.call()
    assert (still.state, still.exit_code) == ("running", 0)
    assert nights.said[-1].startswith("still running: ")
    here = nights.ends()
    judged = nights.call()
    assert (judged.state, judged.exit_code) == ("judged", 0)
    assert judged.verdict == json.loads(here.verdict_file.read_text())
    assert nights.reported == []
    assert nights.call().state == "submitted"
    assert len(nights.submitted) == 2


@pytest.mark.usefixtures("main_is_set")
def test_a_regression_ends_in_4_and_is_reported_once(nights: Nights) -> None:
    nights.call()
    nights.ends(wrong(*range(30)))
    judged = nights.call()
    assert judged.exit_code == 4
    assert [one["verdict"] for one in nights.reported] == ["NO-GO"]
    nights.call()
    nights.ends(wrong(*range(6)))
    assert nights.call().exit_code == 5
    assert [one["verdict"] for one in nights.reported] == ["NO-GO", "INCONCLUSIVE"]


@pytest.mark.long
@pytest.mark.usefixtures("main_is_set")
def test_at_night_the_last_run_is_judged_and_the_next_one_submitted(nights: Nights) -> None:
    nights.call(go_on=True)
    for _ in range(3):
        nights.ends()
        assert nights.call(go_on=True).state == "judged"
    assert len(nights.submitted) == 4


def test_without_a_baseline_nothing_is_submitted(nights: Nights) -> None:
    with pytest.raises(UserError, match="no baseline 'main' .*--set-baseline-if-none"):
        nights.call()
    assert nights.submitted == []


def test_the_first_run_may_become_the_baseline(nights: Nights) -> None:
    nights.options = {"set_if_none": True}
    nights.call()
    first = nights.ends()
    assert (nights.call().state, nights.call().state) == ("baseline", "submitted")
    named = baselines.current(nights.root, "main")
    assert named is not None
    assert named.experiment == first.id
    nights.ends()
    assert nights.call().state == "judged"


def test_a_run_that_did_not_end_well_becomes_no_baseline(nights: Nights) -> None:
    nights.options = {"set_if_none": True}
    nights.call()
    nights.ends(state="incomplete")
    assert nights.call().exit_code == 1
    assert baselines.current(nights.root, "main") is None


@pytest.mark.usefixtures("main_is_set")
def test_what_left_nothing_to_judge_has_failed_and_the_next_call_begins_again(
    nights: Nights,
) -> None:
    nights.call()
    here = nights.ends(state="lost")
    assert nights.call().exit_code == 1
    assert nights.failed == [here.id]
    assert nights.call().state == "submitted"


@pytest.mark.long
@pytest.mark.usefixtures("main_is_set")
def test_after_go_and_only_then_the_candidate_may_become_the_baseline(nights: Nights) -> None:
    nights.options = {"promote": True}
    nights.call()
    nights.ends(wrong(*range(30)))
    nights.call()
    nights.call()
    good = nights.ends()
    nights.call()
    found = list(baselines.entries(nights.root, "main"))
    assert [one.experiment for one in found] == ["20251231-0200-plan-zzzz", good.id]
    with pytest.raises(UserError, match="--promote needs the name of a baseline"):
        nights.call(baseline="20251231-0200-plan-zzzz")


@pytest.mark.usefixtures("main_is_set")
def test_what_it_came_to_is_in_the_history(nights: Nights) -> None:
    nights.call()
    nights.ends(wrong(1))
    nights.call()
    (found,) = history.trends(nights.root, "exact_match")
    assert [point.value for point in found.points] == [pytest.approx(59 / 60)]


# --- failures are confirmed ----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.usefixtures("main_is_set")
def test_a_failure_is_asked_again_before_it_is_called_one(nights: Nights) -> None:
    nights.policy = policy(metrics={"*": {"absolute": 0.2}}, confirm=3)
    nights.call()
    nights.ends(wrong(*range(24)))
    waiting = nights.call()
    assert (waiting.state, waiting.exit_code) == ("running", 0)
    assert [one.id for one in waiting.experiments] == nights.submitted[1:]
    assert len(nights.submitted) == 4
    assert "fails; reruns of rt: " in nights.said[-1]
    assert nights.call().state == "running"
    assert len(nights.submitted) == 4
    nights.all_end()
    judged = nights.call()
    assert judged.exit_code == 0
    assert len(judged.experiments) == 4
    assert judged.verdict is not None
    assert len(judged.verdict["confirmed_by"]) == 3


@pytest.mark.long
@pytest.mark.usefixtures("main_is_set")
def test_a_failure_that_comes_again_is_one(nights: Nights) -> None:
    nights.policy = policy(confirm=2)
    nights.call()
    nights.ends(wrong(*range(24)))
    nights.call()
    nights.all_end(wrong(*range(24)))
    assert nights.call().exit_code == 4
    assert nights.call().state == "submitted"
    nights.ends()
    assert nights.call().state == "judged"  # what passes is not asked again
    assert len(nights.submitted) == 4


def test_what_is_asked_again_has_other_seeds_and_only_failing_run_tasks(tmp_path: Path) -> None:
    warm = {"generation": {"temperature": 0.5, "seed": 7}}
    plan = the_plan(tmp_path, "a-r1", "a-r2", "b", after=("b",), **warm)
    found = again(plan, ["a"], 2)
    assert [one.name for one in found.run_tasks] == ["a-r1", "a-r2"]
    assert {one.task.generation.seed for one in found.run_tasks} == {2007}
    assert found.run_tasks[0].task.after == ()
    assert found.plan.name == "plan-again"
    cold = again(the_plan(tmp_path), ["rt"], 1)
    assert cold.run_tasks[0].task.generation.seed is None


# --- killed, and twice at once -------------------------------------------------------------------------


def killed_at_every_step(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> Standing:
    """Calls that die one step later each time, until one comes through."""
    # A holder that died within this process is dead, though the process lives.
    monkeypatch.setattr(lease, "is_dead", lambda holder, beat: True)
    for step in range(400):
        dying = Dying(step)
        found: list[Standing] = []
        with dying():
            found.append(nights.call())
        if found and not dying.dead:
            return found[0]
    raise AssertionError("it never came through")


@pytest.mark.long
@pytest.mark.usefixtures("main_is_set")
def test_killed_anywhere_while_it_judges_it_goes_on(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.options = {"promote": True}
    nights.call()
    here = nights.ends()
    assert killed_at_every_step(nights, monkeypatch).exit_code == 0
    assert nights.submitted == [here.id]
    assert json.loads(here.verdict_file.read_text())["verdict"] == "GO"
    named = baselines.current(nights.root, "main")
    assert named is not None
    assert (named.experiment, named.number) == (here.id, 2)


@pytest.mark.long
@pytest.mark.usefixtures("main_is_set")
def test_killed_anywhere_while_it_confirms_it_asks_no_more_than_it_should(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.policy = policy(confirm=2)
    nights.call()
    nights.ends(wrong(*range(24)))
    assert killed_at_every_step(nights, monkeypatch).state == "running"
    assert len(nights.submitted) == 3
    nights.all_end(wrong(*range(24)))
    assert killed_at_every_step(nights, monkeypatch).exit_code == 4
    assert len(nights.reported) == 1


@pytest.mark.usefixtures("main_is_set")
def test_two_at_once_submit_once_and_tell_once(nights: Nights) -> None:
    def both() -> list[Standing]:
        barrier = threading.Barrier(4)

        def call(_: int) -> Standing:
            barrier.wait()
            return nights.call()

        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(call, range(4)))

    found = both()
    assert len(nights.submitted) == 1
    assert {one.state for one in found} <= {"submitted", "running"}
    nights.ends(wrong(*range(30)))
    found = both()
    assert [one.exit_code for one in found if one.state == "judged"] != []
    assert len(nights.reported) == 1
    # A call after the last report may have started the next run; no call started two.
    assert len(nights.submitted) <= 2


def sleeping(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, meanwhile: Any) -> None:
    """After its next look at the runs, a call sleeps, and `meanwhile` happens."""
    look, due = getattr(where, name), [meanwhile]

    def looked(runs: cron.Runs) -> Any:
        found = look(runs)
        if due:
            due.pop()()
        return found

    monkeypatch.setattr(where, name, looked)


@pytest.mark.usefixtures("main_is_set")
def test_a_call_that_slept_after_it_looked_submits_no_second_run(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping(monkeypatch, cron.Runs, "last_with_experiment", nights.call)
    assert nights.call().state == "running"
    assert len(nights.submitted) == 1


@pytest.mark.usefixtures("main_is_set")
def test_nor_a_further_confirmation(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    nights.policy = policy(confirm=1)
    nights.call()
    nights.ends(wrong(*range(24)))
    sleeping(monkeypatch, module, "_experiments", nights.call)
    assert nights.call().state == "running"
    assert len(nights.submitted) == 2


@pytest.mark.usefixtures("main_is_set")
def test_a_preparation_that_fails_is_tried_again(nights: Nights) -> None:
    def fail() -> None:
        raise EnvironmentFault("no space left")

    nights.meanwhile = fail
    with pytest.raises(EnvironmentFault):
        nights.call()
    nights.meanwhile = lambda: None
    assert nights.call().state == "submitted"


@pytest.mark.long
@pytest.mark.usefixtures("main_is_set")
def test_records_of_long_ago_go(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron, "KEPT", 2)
    nights.call()
    for _ in range(4):
        nights.ends()
        nights.call(go_on=True)
    (folder,) = (nights.root / "regress").iterdir()
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["00004.jsonl", "00004.verdict.json", "00005.jsonl"]


KILLED = """
import sys, time
from pathlib import Path
from tests.unit.comparison import test_regress as here
from hpcbench.site import cron
from hpcbench import regress as module
from hpcbench.notify import dispatch
root, name = Path(sys.argv[1]), sys.argv[2]
nights = here.Nights(root)
nights.states = {name: "done"}
cron.status = module.status = nights.status
cron.due = lambda *_: False
def tell(*_):
    print("telling", flush=True)
    time.sleep(600)
dispatch.tell_verdict = tell
nights.call()
"""


@pytest.mark.long
@pytest.mark.usefixtures("main_is_set")
def test_a_process_that_is_killed_while_it_tells_leaves_the_rest_to_the_next(
    nights: Nights,
) -> None:
    nights.call()
    here = nights.ends(wrong(*range(30)))
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(nights.root), here.id],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "HPCBENCH_HOME": str(nights.root)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"telling\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    before = json.loads(here.verdict_file.read_text())
    assert nights.call().exit_code == 4
    assert nights.reported == [before]  # the same, so that no reader gets the same report twice
