"""A plan with one run task alone: the same as of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.experiment.layout import Experiment
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.results_cache import PageExperiment, results_of
from hpcbench.schema.plan import ResolvedPlan
from tests.unit import small
from tests.unit.portal.asking import portal_over

NAMES = ("a", "b", "task", "a.b-c_1", "name")


def plan(metadata: object = None) -> ResolvedPlan:
    """One with these run tasks."""
    found = small.resolved(*(small.run_task(name) for name in NAMES))
    return found.model_copy(
        update={"plan": found.plan.model_copy(update={"metadata": {"own": metadata}})}
    )


@pytest.mark.parametrize(
    "metadata", [{"task": {"name": "a"}}, [{"task": {"name": "a"}}, 1], '[{"task": {"name": "a"}}]']
)
def test_one_run_task_is_that_of_the_whole_plan_whatever_its_metadata_hold(
    tmp_path: Path, metadata: object
) -> None:
    whole = plan(metadata)
    here = seen(tmp_path, whole.model_dump_json(indent=2))
    for name in NAMES:
        assert here.alone(name) == whole.model_copy(update={"run_tasks": (whole.run_task(name),)})


def test_a_run_task_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert seen(tmp_path, plan().model_dump_json()).alone("nowhere").run_tasks == ()


def test_a_damaged_one_is_reported_as_damaged(tmp_path: Path) -> None:
    here = seen(tmp_path, plan().model_dump_json()[:-20])
    for look in (lambda: here.alone("b"), lambda: here.resolved):
        with pytest.raises(PortalFault, match="cannot be read") as fault:
            look()
        assert (fault.value.status, fault.value.code) == (409, "unreadable")


def seen(folder: Path, resolved: str) -> PageExperiment:
    """An experiment with this plan, as pages see it."""
    path = folder / "experiments" / "20261120-1432-plan-aaaa"
    path.mkdir(parents=True)
    Experiment(path).resolved_file.write_text(resolved, encoding="utf-8")
    Experiment(path).manifest_file.write_text("{}")
    portal = portal_over(folder)
    return results_of(portal).experiment(portal, path.name)
