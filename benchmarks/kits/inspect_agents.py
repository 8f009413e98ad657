"""The conversations of `benchmarks/agents.py` in Inspect, run by a Python that has inspect_ai and openai.

Prints seconds, CPU seconds and replies. If the folder has a log, of a run that was killed, `eval_retry` goes
on with it: it recovers what Inspect's buffers kept. Inspect's checkpoints are not tried: they need the
program restic, which Inspect downloads.

    python benchmarks/kits/inspect_agents.py FOLDER URL SAMPLES AT_ONCE
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval, eval_retry, task
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool


@tool
def calculator() -> Any:
    """Adds."""

    async def execute(expression: str) -> str:
        """Evaluate an expression.

        Args:
            expression: The expression.
        """
        left, _, right = expression.partition("+")
        return str(int(left) + int(right))

    return execute


@task
def numbers(samples: int) -> Task:
    """Questions that need no thought."""
    data = [Sample(f"question {n}", target="42") for n in range(samples)]
    return Task(data, [use_tools(calculator()), generate()])


def main(folder: str, url: str, samples: int, at_once: int) -> None:
    """Run, or go on."""
    more: dict[str, Any] = {
        "display": "none", "log_dir": folder, "max_connections": at_once, "max_samples": at_once,
    }  # fmt: skip
    begin = time.monotonic()
    if logs := sorted(map(str, Path(folder).glob("*.eval"))):
        os.environ["SCRIPTED_API_KEY"] = "key"  # logs keep no keys
        (log,) = eval_retry(logs[:1], **more)
    else:
        model = get_model("openai-api/scripted/m", base_url=url, api_key="key")
        (log,) = eval(numbers(samples), model, **more)
    seconds, used = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    if log.status != "success" or log.samples is None:
        sys.exit(str(log.error))
    replies = sum(one.role == "assistant" for sample in log.samples for one in sample.messages)
    print(seconds, used.ru_utime + used.ru_stime, replies)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:5]))
