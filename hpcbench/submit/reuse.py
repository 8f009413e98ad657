"""Answers of earlier experiments: which samples of a plan have one, and taking them over.

An answer is taken over where an earlier experiment has one under the same answer key, see
`planning.answer_basis` and `inference.request_body.answer_key`. Submission takes over before any job starts,
so jobs ask only what is left, and no job starts for a group without work. A taken answer is written like any
other, as attempt 0 of its shard, and workers, readers, folding and the checks for damage treat it like any
other. Speed leaves it out: its times are of another run.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from hpcbench import plugins
from hpcbench.data.datasets import Ranges, check_places, open_dataset, samples, total
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment import answer_index
from hpcbench.experiment.answer_index import Place, Reader, Source
from hpcbench.experiment.archiving import fold
from hpcbench.experiment.claims import REUSED, numbered_attempts_of, shard_states, take_over
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.reused import Reused, reused_of
from hpcbench.files.hashing import FileHashes
from hpcbench.inference.request_body import answer_key, hash_and_encode, images_of, read_image
from hpcbench.judging.rated_answers import JudgedAnswers
from hpcbench.number_format import few, many
from hpcbench.planning import is_greedy, measures_speed
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import TaskPrompt
from hpcbench.registry.fitting_metrics import is_resource
from hpcbench.schema.metric import Metric
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Image, Request, Response, Sample
from hpcbench.schema.work import Group
from hpcbench.submit import Say

Policy = Literal["none", "greedy", "sampled"]
"""Which answers are taken over: none, those of greedy decoding, or sampled ones, too."""

NAMED = 3
"""Experiments or run tasks that a line names."""

KEY_BYTES = 32

AT_ONCE = 1000
"""Samples of a judge whose answers are in memory at once."""

_NOT_JUDGED: Mapping[str, JudgedAnswers] = MappingProxyType({})
_NOTHING_DONE: Mapping[str, Sequence[range]] = MappingProxyType({})


@dataclass
class EarlierAnswers:
    """The samples of a run task that earlier experiments answered."""

    keys: bytearray
    """The key of each sample, 32 bytes each; zeros: it has none."""
    chosen: Any
    """Row of the answer of each sample, counted through all sources; -1: it has to be asked."""
    sources: Sequence[Source]
    """Where the answers are."""

    def key(self, place: int) -> str:
        """The key of a sample."""
        return self.keys[place * KEY_BYTES : (place + 1) * KEY_BYTES].hex()

    @property
    def count(self) -> int:
        """Samples that need not be asked."""
        return int((self.chosen >= 0).sum())

    def experiments(self) -> Counter[str]:
        """Experiment → answers it gives."""
        return Counter(answer_index.counts(self.sources, self.chosen))


def why_not(run_task: ResolvedRunTask, policy: Policy, *, basis: str | None) -> str:
    """Why a run task takes over no answers, in words; empty: it may."""
    if policy == "none":
        return "no answers are taken over (`--reuse greedy` takes them over)"
    if measures_speed(run_task):
        return "it measures speed"
    if run_task.ml_task.module is not None:
        return f"module '{run_task.ml_task.module}' decides what is asked"
    if run_task.agent is not None:
        return "its answers depend on what the agent's tools give"
    if policy != "sampled" and not is_greedy(TaskPrompt(run_task).generation):
        return "its answers are sampled; `--reuse sampled` takes them over"
    if not basis:
        return "not all that makes its answers is known"
    return ""


def known_answers(
    root: Path,
    run_tasks: Sequence[tuple[ResolvedRunTask, str]],
    chosen: Mapping[str, Ranges],
    opened: Callable[[ResolvedRunTask], DatasetIterator],
    without: Collection[str] = (),
    taken: Collection[int] = (),
    done: Mapping[str, Sequence[range]] = _NOTHING_DONE,
    judged: Mapping[str, JudgedAnswers] = _NOT_JUDGED,
) -> dict[str, EarlierAnswers]:
    """Run task → its samples that earlier experiments answered; only reads.

    Run tasks whose basis no experiment has are not looked at: their images are not read.

    Args:
        root: the home.
        run_tasks: run tasks that may take over answers, in the plan's order, with their bases.
        chosen: run task → places of its samples.
        opened: opens a run task's dataset.
        without: ids of experiments to leave out.
        taken: origins of answers that this plan uses already.
        done: run task → samples that need no answer any more.
        judged: judge → the answers that it rates; a sample without them has to be asked.

    Raises:
        UserError: a prompt cannot be built.
    """
    hashes = FileHashes(root / "cache" / "hashes.json")
    by_basis: dict[str, list[ResolvedRunTask]] = {}
    for run_task, basis in run_tasks:
        by_basis.setdefault(basis, []).append(run_task)
    found: dict[str, EarlierAnswers] = {}
    for basis, own in by_basis.items():
        sources = answer_index.sources(root, basis, without)
        if not any(one.count for one in sources):
            continue
        keys = {
            one.name: _keys(one, basis, opened(one), chosen[one.name], hashes, judged.get(one.name))
            for one in own
        }
        for name, own_keys in keys.items():
            for some in done.get(name, ()):
                start, stop = some.start * KEY_BYTES, some.stop * KEY_BYTES
                own_keys[start:stop] = bytes(stop - start)
        found.update(_known(keys, sources, taken))
    return found


def _known(
    keys: Mapping[str, bytearray], sources: Sequence[Source], taken: Collection[int]
) -> Iterator[tuple[str, EarlierAnswers]]:
    """Look up the keys of all run tasks of one basis together: no answer serves two of them."""
    import numpy

    short = {name: numpy.frombuffer(own, ">u8")[:: KEY_BYTES // 8] for name, own in keys.items()}
    whole = numpy.concatenate([*short.values()]).astype("u8")
    chosen = answer_index.find(sources, whole, numpy.array([*taken], "u8"))
    at = 0
    for name, own in short.items():
        yield name, EarlierAnswers(keys[name], chosen[at : at + len(own)], sources)
        at += len(own)


def _keys(
    run_task: ResolvedRunTask,
    basis: str,
    dataset: DatasetIterator,
    chosen: Ranges,
    hashes: FileHashes,
    judged: JudgedAnswers | None = None,
) -> bytearray:
    """The key of each sample; zeros for one whose request cannot be made here."""
    prompt, found = TaskPrompt(run_task), bytearray()
    for place, sample in enumerate(samples(dataset, chosen, 0, total(chosen))):
        answers = None
        if judged is not None:
            start = place // AT_ONCE * AT_ONCE
            answers = judged.of(start, start + AT_ONCE).get(sample.id)
            if answers is None:
                found += bytes(KEY_BYTES)
                continue
        messages = prompt.build(sample, answers)
        request = Request(sample.id, messages, prompt.generation, 0.0, basis=basis)
        key = None
        with contextlib.suppress(OSError):  # the worker will say so
            images = [_sha256(image, hashes) for image in images_of(request)]
            key = answer_key(run_task.model.name, request, images)
        found += bytes.fromhex(key) if key is not None else bytes(KEY_BYTES)
    return found


def _sha256(image: Image, hashes: FileHashes) -> str:
    if isinstance(image, Path):
        return hashes.of(image)
    return hash_and_encode(read_image(image))[0]


# --- taking over --------------------------------------------------------------------------------------


def take_over_answers(experiment: Experiment, say: Say = lambda line: None) -> Reused:
    """Take over answers of earlier experiments, before the first job; the caller holds `alone`.

    After a kill at any point, the next call continues.

    Raises:
        UserError: the dataset has changed since preparation.
        OSError: the disk is full or gone.
    """
    if (done := reused_of(experiment)) is not None:
        return done
    experiment.use_packages()
    wanted = [
        (run_task, basis)
        for run_task in experiment.resolved.run_tasks
        if (basis := experiment.answer_basis(run_task.name))
        and not why_not(run_task, experiment.manifest.reuse, basis=basis)
    ]
    found = Reused()
    # In another user's folder nothing can be written: then later plans do not find these answers.
    with contextlib.suppress(OSError, EnvironmentFault):
        answer_index.announce(experiment)
    # Requests of judges hold answers, which have to be taken over first.
    for judges in (False, True):
        some = [one for one in wanted if (one[0].task.judge is not None) is judges]
        _take_over_all(experiment, some, found)
    if wanted:
        found.write(experiment)
    if found.count:
        say(
            in_words(
                found.experiments, found.count, sum(cut.samples for cut in experiment.work.cuts)
            )
        )
        for line in unmeasured_in_words(unmeasured(experiment.resolved.run_tasks, found.run_tasks)):
            say(line)
    return found


def _take_over_all(
    experiment: Experiment, wanted: Sequence[tuple[ResolvedRunTask, str]], found: Reused
) -> None:
    """Take over the answers of some run tasks, given with their bases, and note them in `found`."""
    if wanted:
        root, names = experiment.path.parent.parent, [run_task.name for run_task, _ in wanted]
        before = {name: _taken_before(experiment, name) for name in names}
        opened = _Opened(experiment)
        known = known_answers(
            root,
            wanted,
            {name: experiment.chosen(name) for name in names},
            opened,
            {experiment.id},
            {one for own in before.values() for _, one in own},
            {name: [*_done_before(experiment, name)] for name in names},
            {
                run_task.name: JudgedAnswers(experiment, run_task)
                for run_task, _ in wanted
                if run_task.task.judge is not None
            },
        )
        for name in names:
            counts = Counter(experiment_id for experiment_id, _ in before[name])
            if name in known:
                counts += _take_over(experiment, name, known[name], opened)
                fold(experiment, name)
            if counts:
                found.run_tasks[name] = dict(counts)


def in_words(experiments: Mapping[str, int], count: int, samples: int) -> str:
    """How many samples will be asked, and who answered the others."""
    names = sorted(experiments, key=lambda name: -experiments[name])
    have = "1 has" if count == 1 else f"{count:,} have"
    return (
        f"asks {samples - count:,} of {many(samples, 'sample')}: {have} an answer under the same "
        f"key in {few(names, NAMED)} (`--fresh` asks all)"
    )


def unmeasured(
    run_tasks: Iterable[ResolvedRunTask], reused: Mapping[str, Mapping[str, int]]
) -> dict[str, tuple[str, ...]]:
    """Run task that takes over answers → its metrics for which these answers have no value.

    Args:
        run_tasks: run tasks.
        reused: run task → experiment → answers it gives.
    """
    found: dict[str, tuple[str, ...]] = {}
    for run_task in run_tasks:
        if any(reused.get(run_task.name, {}).values()):
            names = tuple(one.name for one in run_task.metrics if _is_measured(one, run_task))
            found |= {run_task.name: names} if names else {}
    return found


def _is_measured(metric: Metric, run_task: ResolvedRunTask) -> bool:
    """Whether a metric needs answers that this experiment asks for."""
    if not is_resource(metric) or (metric.plugin == "cost" and run_task.model.prices is not None):
        return False
    return not getattr(plugins.load("metrics", metric.plugin), "of_reused", False)


def unmeasured_in_words(found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """At most one line for what `unmeasured` found."""
    if found:
        metrics = few([*dict.fromkeys(name for own in found.values() for name in own)], NAMED)
        tasks = few([*found], NAMED)
        yield f"{metrics} of {tasks}: no value from answers taken over, `--fresh` measures them"


def open_groups(experiment: Experiment) -> tuple[Group, ...]:
    """The planned groups without run tasks that have all answers, and with no more workers than shards."""
    names = [cut.run_task for cut in experiment.work.cuts]
    left = Counter(
        state.shard.run_task for state in shard_states(experiment, names) if state.state != "done"
    )
    return groups_with_work(experiment.work.groups, left)


def groups_with_work(groups: Sequence[Group], left: Mapping[str, int]) -> tuple[Group, ...]:
    """Groups without run tasks that have all answers, and with no more workers than shards.

    Args:
        groups: the groups.
        left: run task → shards with samples to ask.
    """
    kept = []
    for group in groups:
        run_tasks = tuple(name for name in group.run_tasks if left.get(name))
        if run_tasks:
            needed = group.jobs_for(sum(left[name] for name in run_tasks))
            workers = min(group.workers, needed)
            kept.append(replace(group, run_tasks=run_tasks, workers=workers))
    there = {group.id for group in kept}
    return tuple(
        replace(group, after=tuple(one for one in group.after if one in there)) for group in kept
    )


@dataclass
class _Opened:
    """Opens the datasets of an experiment, each once."""

    experiment: Experiment
    known: dict[str, DatasetIterator] = field(default_factory=dict)

    def __call__(self, run_task: ResolvedRunTask) -> DatasetIterator:
        dataset, name = run_task.dataset, run_task.name
        key = dataset.model_dump_json()
        if key not in self.known:
            self.known[key] = open_dataset(dataset, self.experiment.cache_dir)
        count, chosen = self.experiment.dataset_samples(name), self.experiment.chosen(name)
        check_places(self.known[key], dataset.name, count, chosen)
        return self.known[key]


def _done_before(experiment: Experiment, run_task: str) -> Iterator[range]:
    """Samples of shards that a killed call has written."""
    attempts = experiment.attempts(run_task)
    for shard in experiment.work.shards_of((run_task,)):
        if shard.index in attempts:
            yield range(shard.start, shard.stop)


def _taken_before(experiment: Experiment, run_task: str) -> list[tuple[str, int]]:
    """Experiment and origin of each answer that a killed call took over."""
    return [
        (one.reused_from["experiment"], answer_index.origin_of(experiment.id, run_task, one))
        for _, attempts in numbered_attempts_of(experiment, run_task)
        for number, own in attempts
        for one in own
        if number == REUSED and one.reused_from is not None
    ]


def _take_over(
    experiment: Experiment, run_task: str, known: EarlierAnswers, opened: _Opened
) -> Counter[str]:
    """Write the answers of a run task, a shard at a time; returns experiment → answers taken over."""
    task = experiment.resolved.run_task(run_task)
    dataset, chosen, prompt = opened(task), experiment.chosen(run_task), TaskPrompt(task)
    before, reader, found = experiment.attempts(run_task), Reader(), Counter[str]()
    for shard in experiment.work.shards_of((run_task,)):
        if shard.index in before or not (known.chosen[shard.start : shard.stop] >= 0).any():
            continue
        here = samples(dataset, chosen, shard.start, shard.stop, images=False)
        there = answer_index.answers_at(known.sources, known.chosen[shard.start : shard.stop])
        answers = list[Response]()
        for place, sample in enumerate(here):
            if place in there:
                key = known.key(shard.start + place)
                if (answer := _answer(*there[place], key, sample, prompt, reader)) is not None:
                    answers.append(answer)
        if answers:
            take_over(experiment, shard, answers)
            found.update(one.reused_from["experiment"] for one in answers if one.reused_from)
    return found


def _answer(
    source: Source,
    there: Place,
    origin: int,
    key: str,
    sample: Sample,
    prompt: TaskPrompt,
    reader: Reader,
) -> Response | None:
    """The answer of a sample as this experiment writes it; None: it has to be asked."""
    found = reader.answer(source.experiment, there, key, origin)
    if found is None:
        return None
    return replace(found, sample_id=sample.id, prompt=prompt.name(sample))
