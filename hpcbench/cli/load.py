"""`hpcbench load PLAN`: a plan at several loads. It adds a sweep to the plan and submits it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

from hpcbench.cli.output import say
from hpcbench.cli.submit import submit
from hpcbench.errors import UserError
from hpcbench.registry.settings import typed
from hpcbench.submit.local_data import localise, open_cache
from hpcbench.submit.measure import measure
from hpcbench.submit.plan_packages import load_with_packages
from hpcbench.submit.preview import preview_of, read_only

STEPS = (1, 2, 4, 8, 16, 32, 64)
"""Requests in flight at the points of the default sweep."""

ROUNDS = 4
"""Least number of samples per request in flight at such a point: fewer are only ramp and drain."""

LIMITS = ("ttft", "tpot", "e2e")
"""Names of `--slo`, each in milliseconds."""


def load(arguments: argparse.Namespace) -> int:
    """`hpcbench load PLAN`."""
    sweep = dict(_sweep(arguments))
    # One worker: every point on the same engine of the same node, one after the other. `--set` still wins.
    first = ["parallelism=1", *_only(arguments)]
    if "concurrency" not in sweep:
        found = _default(arguments, [*first, *arguments.settings], bool(sweep))
        sweep |= {"concurrency": found} if found else {}
    laid_over = {
        f"load.{key}={json.dumps(value)}": _typed(arguments, key) for key, value in sweep.items()
    }
    arguments.typed = {text: option for text, option in laid_over.items() if option}
    arguments.settings = [*first, *laid_over, *arguments.settings]
    return submit(arguments)


def _sweep(arguments: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The `load` keys of the command line; points of either kind replace both kinds of the plan."""
    if arguments.concurrency is not None or arguments.rate is not None:
        yield "concurrency", _numbers("--concurrency", arguments.concurrency, int)
        yield "rate", _numbers("--rate", arguments.rate, float)
    if arguments.slo is not None:
        yield "slo", _limits(arguments.slo)
    for name in ("arrival", "requests", "warm_up"):
        if (value := getattr(arguments, name)) is not None:
            yield name, value


def _typed(arguments: argparse.Namespace, key: str) -> str:
    """The option that set a key of `load`; empty: none did."""
    value = getattr(arguments, key, None)
    return "" if value is None else typed(key, value)


def _only(arguments: argparse.Namespace) -> list[str]:
    return [f"only={json.dumps(arguments.run_task)}"] if arguments.run_task else []


def _default(arguments: argparse.Namespace, settings: list[str], given: bool) -> list[int]:
    """Points for a plan without any, limited by its samples; `given`: other keys of `load` were given."""
    if arguments.dry_run:
        resolved, _ = read_only(arguments.plan, arguments.registry, settings)
    else:
        resolved, _ = load_with_packages(arguments.plan, arguments.registry, settings, say=say)
    own = resolved.plan.load is not None or not given
    if own and any(run_task.sweep for run_task in resolved.run_tasks):
        return []
    if arguments.dry_run:
        counts = preview_of(resolved).measured.samples
    else:
        here = localise(resolved, open_cache(resolved.site))
        counts = measure(here, hashes=False).samples
    fewest = min([*counts.values(), *([arguments.requests] if arguments.requests else [])])
    return [step for step in STEPS if step * ROUNDS <= fewest] or [1]


def _numbers(option: str, text: str | None, kind: Callable[[str], Any]) -> list[Any] | None:
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        what = f"'{text}' is not a list of numbers"
        raise UserError(what, file=option, remedy=f"for example {option} 1,2,4") from error


def _limits(text: str) -> dict[str, float]:
    """Parse `ttft=500,tpot=50` into the keys of a definition."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if name not in LIMITS or number <= 0:
            remedy = "in milliseconds: --slo ttft=500,tpot=50,e2e=10000"
            raise UserError(f"'{part}' is not a limit", file="--slo", remedy=remedy)
        found[f"{name}_ms"] = number
    return found
