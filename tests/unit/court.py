"""An experiment with a judge, on disk: answers and verdicts as tests want them, without a model."""

from __future__ import annotations

import json
from pathlib import Path

from hpcbench.experiment.claims import Owner, claim, states_of
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.records import Response, Times
from tests.unit.small import record, resolved, run_task, submitted, write_dataset


class Court:
    """An experiment of a run task `rt` and its judge, with answers and verdicts as a test wants them."""

    def __init__(self, folder: Path, samples: int = 40, model: str = "", rated: str = "") -> None:
        data = write_dataset(folder / "data", [record(number) for number in range(samples)])
        verdict = {"type": "object", "properties": {"verdict": {"enum": ["right", "wrong"]}}}
        judged = run_task(
            "judged", dataset={"source": str(data)}, model={"name": "judge", "family": model},
            prompt={"name": "rubric", "user": "{{ answer }}"}, plugin="judge", metrics=("judge",),
            judge={"of": "rt"}, after=("rt",), on_failed="exclude",
        )  # fmt: skip
        task = MLTask(
            name="judge", plugin="judge", output="object", metrics=("judge",),
            output_schema={**verdict, "required": ["verdict"]},
        )  # fmt: skip
        plan = resolved(
            run_task(dataset={"source": str(data)}, model={"family": rated}),
            judged.model_copy(update={"ml_task": task}),
            shard_size=10,
        )
        self.experiment = submitted(folder, plan, samples)

    def answer(self, name: str, texts: dict[str, str | None], shards: int = 99) -> None:
        """Answers of a run task: sample → text; None: the request failed."""
        for shard in self.experiment.work.shards_of((name,)):
            if shard.index >= shards:
                continue
            (state,) = states_of(self.experiment, [shard])
            taken = claim(self.experiment, state, Owner.here())
            assert taken is not None
            for number in range(shard.start, shard.stop):
                text = texts[f"s{number}"]
                taken.record(Response(
                    f"s{number}", "failed" if text is None else "ok", text, None, None,
                    Times(1, 1, None, (), 2), 1, (), None if text else "gone",
                ))  # fmt: skip
            taken.end("done")

    def verdicts(self, said: dict[str, str | None]) -> None:
        """Verdicts: sample → word; None: a failed request; `?`: unreadable."""
        words = {
            name: None
            if word is None
            else "no idea"
            if word == "?"
            else json.dumps({"verdict": word})
            for name, word in said.items()
        }
        self.answer("judged", words)

    def labels(self, file: Path, said: dict[str, str], answer: str = "") -> Path:
        rows = [
            {"sample": name, "answer": answer or f"a{name}", "label": word}
            for name, word in said.items()
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file
