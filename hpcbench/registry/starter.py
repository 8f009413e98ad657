"""The plan that people begin with: one run task, written by `hpcbench data add` and `hpcbench new`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from hpcbench.errors import Problem, UserError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def check_name(name: str) -> None:
    """See that a plan and its run task can be called so, before anything else is asked.

    Raises:
        UserError: they cannot.
    """
    if not _NAME.fullmatch(name):
        what = f"'{name}' is no name of a plan: Latin letters, digits, and `.`, `_`, `-` inside"
        raise UserError(Problem(what, remedy=f"such as {plain_name(name)}"))


def plain_name(text: str) -> str:
    """A name like a text that may be none."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:76].strip("-._") or "first"


def plan_text(
    name: str,
    *,
    ml_task: str,
    model: str | Mapping[str, Any],
    dataset: str,
    prompt: str = "",
    metrics: Sequence[str] = (),
    comment: str = "",
    **further: Any,
) -> str:
    """YAML of a plan with one run task of the plan's name.

    Args:
        name: name of the plan and its run task.
        ml_task: name of an ML task.
        model: name of a model, or the same with changes.
        dataset: name of a dataset.
        prompt: name of a prompt; empty: the ML task's own.
        metrics: names of metrics; none: the ML task's own.
        comment: lines for the top of the file, without `#`.
        further: other keys of the run task; those that are None are left out.
    """
    run_task: Mapping[str, Any] = {
        "name": name, "ml_task": ml_task, "model": model, "dataset": dataset,
        "prompt": prompt or None, "metrics": list(metrics) or None, **further,
    }  # fmt: skip
    plan = {
        "schema_version": 1,
        "name": name,
        "run_tasks": [{key: value for key, value in run_task.items() if value is not None}],
    }
    lines = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    return lines + yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=110)
