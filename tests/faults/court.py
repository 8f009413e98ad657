"""A judge as a run task: a scripted engine that answers, another that judges, and a person's labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.faults.conftest import Bench, Trial

RIGHT = '{"reason": "the same", "verdict": "right"}'
WRONG = 'It differs. ```json\n{"reason": "another text", "verdict": "wrong"}\n```'
SEES = r"<reference>(.*)</reference>\s*<answer>\1</answer>"
"""A judge that sees what is right."""

JUDGE = {
    "name": "judged", "ml_task": "judge_binary", "model": "judge", "prompt": None,
    "judge": {"of": "numbers"},
}  # fmt: skip


class Court:
    """A user with a model that answers and a model that judges."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.orders = bench.script_file.with_name("judge.json")
        bench.model("judge", engine_options={"script": str(self.orders)})
        self.says()

    def says(self, *first: tuple[str, str], **words: Any) -> None:
        """The judge's verdicts: by these patterns, and else what is true."""
        says = [*first, (SEES, RIGHT), ("<answer>", WRONG)]
        self.orders.write_text(json.dumps({"says": says, **words}))

    def submitted(self, *options: str, **judge: Any) -> Trial:
        """The plan of both, submitted."""
        return self.bench.submit(self.bench.plan({}, {**JUDGE, **judge}), *options)

    @property
    def asked(self) -> list[str]:
        """Questions that the judge's engine got."""
        file = self.orders.with_name("asked.log")
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.startswith("judge ")]


def judged(trial: Trial, name: str = "judged") -> Any:
    """The judge in `metrics.json`."""
    return json.loads(trial.metrics)["judges"][name]


def labels(court: Court, trial: Trial, every: int = 1, **wrong: str) -> Path:
    """A person's labels of what the model answered: the truth, but for some of another text."""
    rows = []
    for name, text in sorted(trial.answers("numbers").items()):
        number = int(name[-3:])
        if number % every == 0:
            said = "right" if number % 3 else "wrong"
            rows.append({"sample": name.split("/")[1], "answer": text.split()[1], "label": said})
    path = court.bench.folder / "labels.jsonl"
    path.write_text("".join(json.dumps({**row, **wrong}) + "\n" for row in rows))
    return path
