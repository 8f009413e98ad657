"""Examples of `--help` that load the real model several times; a plan of eight samples stands for PLAN."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.demo.test_ab import said
from tests.demo.test_reuse import PLAN, User
from tests.help_examples import example

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.campaign,  # sweeps, arms and reruns are tested with a scripted engine
]


@pytest.fixture
def user(tmp_path: Path) -> User:
    user = User(tmp_path)
    user.samples(8)
    return user


def typed(user: User, words: list[str], *more: str) -> str:
    return said(user, *words, "--registry", "registry", *more)


def test_two_arms_of_a_plan(user: User) -> None:
    own = {"PLAN": "plan.yaml"}
    words = example(
        "ab PLAN --a model.dtype=bfloat16 --b model.dtype=float16 --metrics answers_per_s --wait",
        own,
    )
    assert "answers_per_s" in typed(user, words, "--set", "shard_size=4")  # few loads


def test_a_sweep_of_concurrency(user: User) -> None:
    user.write("plan.yaml", PLAN.replace("    concurrency: 2\n", ""))
    own = {"PLAN": "plan.yaml", "1,8,64": "1,4,8"}  # 64 at once need more than eight samples
    words = example("load PLAN --concurrency 1,8,64 --slo ttft=500,tpot=50 --wait", own)
    assert "sweep" in typed(user, words)


def test_a_sweep_of_rates(user: User) -> None:
    user.write("plan.yaml", PLAN.replace("    concurrency: 2\n", ""))
    own = {"PLAN": "plan.yaml", "200": 8}
    assert "0.5" in typed(user, example("load PLAN --rate 0.5,1,2 --requests 200", own), "--wait")


def test_an_experiment_is_run_again(user: User) -> None:
    user.submit()
    (first,) = user.experiments
    said(user, *example("rerun EXPERIMENT --wait", {"EXPERIMENT": first.id}))
    again = user.experiments[-1]
    assert again.id != first.id
    assert again.metrics_file.read_bytes() == first.metrics_file.read_bytes()
