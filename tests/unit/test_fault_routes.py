"""Tests of faults run by both routes of requests: through the wrapper, and beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict

import pytest

from tests.unit.wrapper.running import ROOT

NO_ROUTE = {
    "test_ci_templates.py": "commands of a continuous integration, which ask no engine",
    "test_load.py": "one sweep for all its tests, with one run task by HTTP and one by gRPC",
}
"""Files whose tests have no user of their own, and their subjects."""

ALONE = {
    "test_an_undisturbed_run_answers_everything_once",
    "test_submit_killed_at_any_step_and_run_again_submits_one_experiment",
}
"""Tests of an experiment that others share."""

ELSEWHERE = {
    "test_a_budget_of_a_model_beside_an_agents_own_ends_the_agent",
    "test_a_budget_that_ends_one_arm_of_a_comparison_ends_the_other",
    "test_a_gateways_limits_fail_no_sample_and_the_run_says_that_they_held_it_up",
    "test_a_load_says_which_token_it_waits_for_and_its_failed_requests_count",
    "test_a_load_that_fails_without_a_token_leaves_its_figures",
    "test_a_resume_without_the_secret_or_with_a_wrong_one_submits_nothing",
    "test_tokens_of_a_model_that_an_agent_uses_beside_its_own_count",
    "test_a_secret_and_its_token_are_in_no_argument_and_in_no_file_of_an_experiment",
    "test_a_worker_that_has_to_end_does_not_wait_for_a_gateway_with_its_warm_up",
}
"""Tests of models elsewhere: their relay is a hop by both routes."""


def collected(full: str) -> dict[str, dict[str, set[str]]]:
    """File → test → its routes."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/faults"],
        cwd=ROOT, env={**os.environ, "HPCBENCH_FULL": full, "HPCBENCH_SEARCH": "0"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file, test, case in re.findall(r"^tests/faults/(\S+?)::(\w+)(.*)$", done.stdout, re.M):
        found[file][test] |= {way for way in ("direct", "proxied") if way in case}
    return found


@pytest.mark.long
def test_every_fault_is_seen_by_both_routes() -> None:
    whole = collected("1")
    for file, tests in whole.items():
        for test, routes in tests.items():
            if file not in NO_ROUTE and test not in ALONE:
                wanted = {"direct"} if test in ELSEWHERE else {"direct", "proxied"}
                assert routes == wanted, (file, test)
    assert set(NO_ROUTE) < set(whole)


@pytest.mark.long
def test_each_run_of_all_tests_sees_faults_by_each_route() -> None:
    share = [routes for tests in collected("0").values() for routes in tests.values()]
    for route in ("direct", "proxied"):
        assert sum(route in routes for routes in share) > len(share) / 4
