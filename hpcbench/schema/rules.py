"""Which of a gate's rules is for a metric or figure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

RuleT = TypeVar("RuleT")


def rule_for(rules: Mapping[str, RuleT], run_task: str, name: str) -> RuleT | None:
    """The rule for a metric or figure of a run task; None: there is none.

    One for run tasks comes before one for all, then a name before a pattern, then the first.
    """
    found: list[tuple[bool, bool, RuleT]] = []
    for key, rule in rules.items():
        of, colon, what = key.rpartition(":")
        if (not colon or fnmatchcase(run_task, of)) and fnmatchcase(name, what):
            found.append((bool(colon), what == name, rule))
    return max(found, key=lambda one: one[:2])[2] if found else None  # the first of the greatest


def by_name(rules: Mapping[str, RuleT]) -> dict[str, RuleT]:
    """The rules that name a metric without `*` or `?`: only these are for resource metrics.

    A rule for all metrics is meant for scores: a margin of 0.02 means nothing in milliseconds.
    """
    return {key: one for key, one in rules.items() if not {*"*?["} & {*key.rpartition(":")[2]}}
