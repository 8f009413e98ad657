"""The answers that a judge rates, in their present state in the experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hpcbench.experiment.claims import responses_of, shard_states
from hpcbench.experiment.control import ControlState
from hpcbench.experiment.layout import Experiment
from hpcbench.parsers.reasoning import strip_reasoning
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import ANSWERED

Judged = tuple[str, ...]
"""The answer of each run task that a judge reads, in the order of `Judge.judged`."""


@dataclass
class JudgedAnswers:
    """Answers of the run tasks that a judge reads, a shard of the judge at a time."""

    experiment: Experiment
    run_task: ResolvedRunTask
    """The judge."""
    _last: tuple[tuple[int, int], Mapping[str, Judged]] | None = field(default=None, repr=False)

    def of(self, start: int, stop: int) -> Mapping[str, Judged]:
        """Sample → its answers, for at least the chosen samples from `start` to `stop` (exclusive).

        Thoughts before an answer are removed, as its parser removes them. Samples without an answer of each
        run task, or with thoughts that never end, are left out.
        """
        if self._last is None or self._last[0] != (start, stop):
            judge = self.run_task.task.judge
            assert judge is not None
            each = [dict(self._texts(name, start, stop)) for name in judge.judged]
            common = set(each[0]).intersection(*each[1:])
            found = {sample: tuple(one[sample] for one in each) for sample in common}
            self._last = (start, stop), found
        return self._last[1]

    def _texts(self, name: str, start: int, stop: int) -> Iterator[tuple[str, str]]:
        keeps = self.experiment.resolved.run_task(name).ml_task.reasoning == "keep"
        for shard in self.experiment.work.shards_of((name,)):
            if shard.start >= stop or shard.stop <= start:
                continue
            for response in responses_of(self.experiment, shard):
                if response.text is None or response.outcome not in ANSWERED:
                    continue
                text = response.text if keeps else strip_reasoning(response.text)
                if text is not None:
                    yield response.sample_id, text


def waits_for(experiment: Experiment, run_task: ResolvedRunTask, control: ControlState) -> str:
    """The run task that a judge has to wait for, as others still work on its answers; empty: none.

    A run task that ended early, by a user or because it failed, gets no more answers: a judge rates those
    that there are.
    """
    judge = run_task.task.judge
    for name in () if judge is None else judge.judged:
        if control.ended(name):
            continue
        if any(state.state != "done" for state in shard_states(experiment, [name])):
            return name
    return ""
