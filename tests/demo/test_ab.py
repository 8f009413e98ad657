"""Two whole plans in turns: the real tiny model answers both, and one table compares them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from tests.demo.reader import hpcbench
from tests.demo.test_reuse import PLAN, User
from tests.help_examples import example

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.campaign,  # tests/faults and tests/slurm have two arms in turns with a scripted engine
]

LIMIT = 20

OTHER = PLAN.replace("prompt: ask", "prompt: brief").replace("max_tokens: 32", "max_tokens: 8")


def said(user: User, *words: object) -> str:
    """Output of a command."""
    return hpcbench(user.folder / "home", *words, folder=user.folder, RUN_MODE="prod")


def test_two_plans_take_turns_and_one_table_compares_them(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.samples(LIMIT + 2)
    user.write("registry/prompts/brief.yaml", 'name: brief\nuser: "In one word: {{ question }}"\n')
    user.write("A.yaml", PLAN)
    user.write("B.yaml", OTHER.replace("name: again", "name: brief"))
    words = example("ab A.yaml B.yaml --limit 20 --wait")
    shown = said(user, *words, "--registry", "registry", "--no-early-stop")

    (here,) = (user.folder / "home" / "experiments").iterdir()
    experiment = Experiment(here)
    (pair,) = experiment.resolved.pairs.values()
    answers = [
        {sample for _, own in answers_of(experiment, name) for sample in own} for name in pair
    ]
    assert [len(some) for some in answers] == [LIMIT, LIMIT]
    assert answers[0] == answers[1]

    rows = {line.lstrip("* ").split()[0]: line for line in shown.splitlines() if line.strip()}
    figures = {
        "anls", "exact_match", "coverage", "prompt_tokens", "completion_tokens", "answers_per_s",
        "tokens_per_s", "ttft_ms", "e2e_ms",
    }  # fmt: skip
    assert figures <= rows.keys(), shown
    assert "load for both arms" in shown, "one engine serves both"
    assert f"{LIMIT} samples" in shown

    again = said(user, *example("ab @last"))
    assert "arm a: A.yaml" in again
    assert "arm b: B.yaml" in again
    (reported,) = json.loads(said(user, "ab", here.name, "--json"))["run_tasks"]
    look = reported["look"]
    assert (look["last"], look["samples"], look["same_nodes"]) == (True, LIMIT, True)
    assert look["answers"]["a"]["coverage"] == look["answers"]["b"]["coverage"] == 1.0
    assert look["answers"]["b"]["completion_tokens"] <= 8
