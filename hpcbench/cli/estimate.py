"""`hpcbench submit --estimate`: what a plan would take, and where it fits."""

from __future__ import annotations

import re
import textwrap
from dataclasses import asdict

from hpcbench.cli.dry_run import tell_findings
from hpcbench.cli.output import print_json
from hpcbench.submit.estimate_text import outlook, words
from hpcbench.submit.preview import WIDTH, Preview, facts_json


def show(preview: Preview, as_json: bool) -> int:
    """Print what a plan would take; nothing is submitted or written."""
    resolved, found = preview.resolved, outlook(preview)
    if as_json:
        told = {name: [asdict(queue) for queue in known] for name, known in found.queues.items()}
        data = {**asdict(found.estimate), "measured": found.estimate.measured, "queues": told}
        print_json(
            {
                "plan": resolved.plan.name,
                "samples": dict(found.samples),
                **data,
                **facts_json(preview),
            }
        )
    else:
        print("\n".join(_folded(line) for line in words(preview, found)))
    return tell_findings(preview, warnings=not as_json)


def _folded(line: str) -> str:
    """A line at 80 columns; what goes on stands below its text."""
    title = re.match(r"  [A-Za-z-]+(?: fetch)?  +(?=\S)", line)
    hang = len(title[0]) if title else len(line) - len(line.lstrip()) + 4
    return textwrap.fill(
        line, WIDTH, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )
