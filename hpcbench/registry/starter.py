"""A first plan: one run task, written by `hpcbench data add` and `hpcbench new`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from hpcbench.errors import UserError
from hpcbench.schema.forms import FORMS
from hpcbench.schema.names import FLAT_NAME, is_name


def check_name(name: str) -> None:
    """Check that a plan and its run task can have this name, before any other question.

    Raises:
        UserError: they cannot.
    """
    if not is_name(name, flat=True):
        what = f"'{name}' cannot name a plan: a name must be {FORMS[FLAT_NAME]}"
        raise UserError(what, remedy=f"such as {plan_name(name)}")


def plan_name(text: str) -> str:
    """A plan's name derived from any text."""
    return plain_name(text.replace("/", " "), longest=76, empty="first")


def plain_name(text: str, between: str = "-", *, longest: int = 120, empty: str = "unnamed") -> str:
    """A definition's name derived from any text; characters that no name has become `between`."""
    return re.sub(r"[^A-Za-z0-9._/-]+", between, text)[:longest].strip("/-._") or empty


def plan_text(
    name: str,
    *,
    ml_task: str,
    model: str | Mapping[str, Any],
    dataset: str,
    prompt: str = "",
    metrics: Sequence[str] = (),
    comment: str = "",
    min_coverage: float | None = None,
    **further: Any,
) -> str:
    """YAML of a plan with one run task of the plan's name.

    Args:
        name: name of the plan and its run task.
        ml_task: name of an ML task.
        model: name of a model, or its name with changes.
        dataset: name of a dataset.
        prompt: name of a prompt; empty: the ML task's own.
        metrics: names of metrics; none: the ML task's own.
        comment: lines for the top of the file, without `#`.
        min_coverage: the plan's smallest coverage; None: the default.
        further: other keys of the run task; None values are left out.
    """
    run_task: Mapping[str, Any] = {
        "name": name, "ml_task": ml_task, "model": model, "dataset": dataset,
        "prompt": prompt or None, "metrics": list(metrics) or None, **further,
    }  # fmt: skip
    plan = {
        "schema_version": 1,
        "name": name,
        **({} if min_coverage is None else {"min_coverage": min_coverage}),
        "run_tasks": [{key: value for key, value in run_task.items() if value is not None}],
    }
    lines = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    return lines + yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=110)
