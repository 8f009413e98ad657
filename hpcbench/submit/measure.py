"""Facts that only the files give, measured once before submission."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from hpcbench import plugins
from hpcbench.data.datasets import (
    bad_before,
    bad_rows,
    choose,
    open_dataset,
    samples,
    total,
    unreadable,
)
from hpcbench.data.pictures import fault_of
from hpcbench.data.tree import content_hash, folder_files
from hpcbench.errors import HpcbenchError, Problem, UserError, mistake
from hpcbench.experiment.layout import home
from hpcbench.files.atomic import derived, write_json
from hpcbench.number_format import few, figure
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import HASH_FORMULA, TaskPrompt, prompt_hash
from hpcbench.registry.engine_limits import beyond
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.model import MOST_REQUEST_MB, Model
from hpcbench.schema.plan import Measured, ResolvedPlan, ResolvedRunTask
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import Image, StoredImage
from hpcbench.schema.run_task import RunTaskSettings
from hpcbench.submit import Say
from hpcbench.submit.reference_check import check_references
from hpcbench.wrapper.bodies import BODY_LIMIT

MOST_SHOWN = 20
"""Maximum number of reported bad samples; further bad samples are counted."""

SCALING = (
    "do_resize", "size", "min_pixels", "max_pixels", "max_image_size", "do_image_splitting",
    "crop_to_patches", "min_patches", "max_patches", "do_pan_and_scan", "do_center_crop", "crop_size",
)  # fmt: skip
"""Settings of image processors in transformers that decide at which size a model sees an image."""

TEXT_SHARE = 0.05
"""Assumed size of a large request's text, as a share of its images."""

LOOK = 2
"""Version of the checks of images: a change makes earlier results invalid."""


def measure(
    resolved: ResolvedPlan, *, hashes: bool = True, say: Say = lambda line: None
) -> Measured:
    """Hash datasets and models, check their samples, choose each run task's samples, build all prompts.

    Args:
        resolved: the plan; its datasets and models are folders of this machine.
        hashes: whether to hash files and check images; a dry run does not.
        say: receives lines about slow steps.

    Raises:
        UserError: a dataset, a prompt or a model's folder is not as its definition says.
    """
    measuring = _Measuring(resolved, hashes, say)
    problems: list[Problem] = []
    for run_task in resolved.run_tasks:
        try:
            measuring.run_task(run_task)
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(*dict.fromkeys(problems))
    measuring.tell_unused()
    return measuring.measured


class _Looked:
    """A dataset that was opened, hashed and checked."""

    def __init__(self, iterator: DatasetIterator, content: str, bad: dict[int, Problem]) -> None:
        self.iterator, self.content, self.bad = iterator, content, bad
        self.rows = bad_rows(iterator)


@dataclass(frozen=True)
class _Built:
    """Facts about a run task's built prompts."""

    images: int
    """Most images in one prompt: engines set limits by it. 0 if a sample's images are unknown without
    reading them."""
    reuse: bool
    """Whether any image occurs more than once: then caches help. Where images are unknown, hpcbench looks at
    documents instead."""
    prompts: frozenset[str]
    """Names of the prompts that samples get."""
    image_bytes: int
    """Most bytes of the images of one prompt, as far as files show them."""
    largest: str
    """Sample with that prompt."""


class _Measuring:
    def __init__(self, resolved: ResolvedPlan, hashes: bool, say: Say) -> None:
        self.resolved, self.hashes, self.say = resolved, hashes, say
        self.folder = home(resolved.site) / "cache"
        self.cache = self.folder / "hashes.json" if hashes else None
        self.looked: dict[str, _Looked] = {}
        self.built: dict[tuple[Hashable, ...], _Built] = {}
        """Key of all that determines a run task's prompts → facts about the built prompts."""
        self.scored = set[tuple[Hashable, ...]]()
        """Keys of all that determines whether metrics can read references, for checked run tasks."""
        self.counts: dict[str, int] = {}
        self.dataset_samples: dict[str, int] = {}
        self.skipped: dict[str, int] = {}
        self.unusable: dict[str, int] = {}
        self.dataset_hashes: dict[str, str] = {}
        self.model_hashes: dict[str, str] = {}
        self.image_processing: dict[str, dict[str, JsonValue]] = {}
        self.prompt_hashes: dict[str, str] = {}
        self.images: dict[str, int] = {}
        self.reuse: dict[str, bool] = {}
        self.chosen: dict[str, tuple[tuple[int, int], ...]] = {}

    @property
    def measured(self) -> Measured:
        return Measured(
            samples=self.counts,
            dataset_hashes=self.dataset_hashes,
            model_hashes=self.model_hashes,
            image_processing=self.image_processing,
            prompt_hashes=self.prompt_hashes,
            prompt_formula=HASH_FORMULA,
            skipped=self.skipped,
            unusable=self.unusable,
            images=self.images,
            reuse=self.reuse,
            dataset_samples=self.dataset_samples,
            chosen=self.chosen,
        )

    def run_task(self, run_task: ResolvedRunTask) -> None:
        name, task = run_task.name, run_task.task
        looked = self._look(run_task.dataset)
        seed = self.resolved.plan.seed
        if task.sample is not None and task.sample.seed is not None:
            seed = task.sample.seed
        ranges = choose(looked.iterator, task, seed, looked.bad)
        self.counts[name] = total(ranges)
        self.chosen[name] = tuple(ranges)
        self.dataset_samples[name] = looked.iterator.count()
        self.dataset_hashes[name] = looked.content
        if looked.rows or looked.bad:
            self.unusable[name] = len(looked.rows) + len(looked.bad)
        if skipped := _skipped(looked, task, ranges):
            self.skipped[name] = skipped
            self._enough_left(run_task, looked, skipped)
        self.prompt_hashes[name] = prompt_hash(run_task)
        if self.hashes:
            _check_examples(run_task.prompt)
        built = self._prompts(run_task, looked, ranges)
        self.images[name], self.reuse[name] = built.images, built.reuse
        self._certain_failures(run_task, looked, ranges, built.images)
        self._tell_too_large(run_task, built)
        self._model(run_task.model)

    def _enough_left(self, run_task: ResolvedRunTask, looked: _Looked, skipped: int) -> None:
        """Refuse here what could only end as incomplete: samples that are left out count against coverage.

        Raises:
            UserError: so many samples cannot be used that the run task cannot reach `min_coverage`.
        """
        asked = self.counts[run_task.name]
        least, most = self.resolved.min_coverage(run_task.name), asked / (asked + skipped)
        if not asked or most >= least:
            return
        bad = [*looked.bad.values(), *looked.rows]
        first = [Problem(one.message, one.file, one.line) for one in bad[:MOST_SHOWN]]
        floor = math.floor(most * 100) / 100
        raise UserError(
            *first,
            run_task.problem(
                "dataset",
                f"run task '{run_task.name}' would end as incomplete: {skipped} of {asked + skipped} samples "
                f"cannot be used, and min_coverage requires {least * 100:g} %",
                f"correct them (`hpcbench data check {run_task.dataset.name}` lists all), or set "
                f"min_coverage: {floor:g} to run the others",
            ),
        )

    def _certain_failures(
        self, run_task: ResolvedRunTask, looked: _Looked, ranges: list[tuple[int, int]], images: int
    ) -> None:
        """Find errors of all requests or all scores here, not on a GPU.

        Raises:
            UserError: no request could be answered, or a metric could score no answer.
        """
        found = [
            run_task.problem(*one) for one in beyond(run_task, _engine(run_task.model), images)
        ]
        if found:
            raise UserError(*found)
        metrics = [metric.model_dump_json() for metric in run_task.metrics]
        key = (run_task.ml_task.model_dump_json(), *metrics, id(looked), tuple(ranges))
        reads_references = run_task.task.judge is None  # a judge's metric reads verdicts alone
        evaluates = "evaluation" in self.resolved.plan.stages and reads_references
        if evaluates and key not in self.scored:
            check_references(self._with_built_metrics(run_task), looked.iterator, ranges)
            self.scored.add(key)

    def _tell_too_large(self, run_task: ResolvedRunTask, built: _Built) -> None:
        """Report that the wrapper would refuse the largest request; others may be answered."""
        task, model = run_task.task, run_task.model
        if task.images == "file" or run_task.ml_task.module is not None:
            return
        sent = built.image_bytes if task.protocol == "grpc" else built.image_bytes * 4 / 3
        limit = model.request_bytes or BODY_LIMIT
        if sent <= limit:
            return
        wanted = math.ceil(sent * (1 + TEXT_SHARE) / 1e6)
        remedy = "make its images smaller, or leave it out with `where`"
        if wanted <= MOST_REQUEST_MB:
            remedy = f"set `request_mb: {wanted}` in the model's definition"
        what = (
            f"run task '{run_task.name}': the images of sample '{built.largest}' make a request of "
            f"{figure(sent / 1e6)} MB, but the wrapper of model '{model.name}' takes at most "
            f"{figure(limit / 1e6)} MB, so the sample would be invalid"
        )
        self.say(f"! {run_task.problem('model', what, remedy)}")

    def _with_built_metrics(self, run_task: ResolvedRunTask) -> ResolvedRunTask:
        """In a dry run, the run task without metrics of packages that are not built yet."""
        if self.hashes:
            return run_task
        built = [
            one
            for one in run_task.metrics
            if one.package is None or plugins.find("metrics", one.plugin) is not None
        ]
        return run_task.model_copy(update={"metrics": tuple(built)})

    def tell_unused(self) -> None:
        """Report prompt entries that no sample gets: a condition may be misspelt."""
        used = {name for one in self.built.values() for name in one.prompts}
        prompts = {one.prompt.name: one.prompt for one in self.resolved.run_tasks}
        for prompt in prompts.values():
            unused = [one.id for one in prompt.prompts if f"{prompt.name}/{one.id}" not in used]
            if unused and hasattr(plugins.load("prompts", prompt.strategy), "name"):
                names = few([*map(repr, unused)], MOST_SHOWN)
                self.say(f"prompts/{prompt.name}: no selected sample uses {names}")

    def _prompts(
        self, run_task: ResolvedRunTask, looked: _Looked, ranges: list[tuple[int, int]]
    ) -> _Built:
        """`_check_prompts`, called once for run tasks of a matrix that ask several models the same."""
        key = (
            *(self.prompt_hashes[run_task.name], run_task.prompt.name),
            *(run_task.ml_task.name, run_task.dataset.name),
            *(id(looked), tuple(ranges)),
        )
        if key not in self.built:
            self.built[key] = _check_prompts(run_task, looked.iterator, ranges, sizes=self.hashes)
        return self.built[key]

    def _look(self, dataset: Dataset) -> _Looked:
        key = dataset.model_dump_json(exclude={"name", "description"})
        if key not in self.looked:
            # A dry run does not keep rendered pages either.
            iterator = open_dataset(dataset, self.folder if self.hashes else None)
            iterator.count()
            content, bad = "not hashed", dict[int, Problem]()
            if self.hashes:
                self.say(f"hashing {_name(dataset)}")
                # A missing image is reported below, with its row.
                content = content_hash(
                    Path(dataset.source), iterator.files(), self.cache, gone=True
                )
                _check_whole_hash(dataset, self.cache)
                bad = self._unreadable(dataset, iterator, content)
            self.looked[key] = _Looked(iterator, content, bad)
            self._tell_bad(dataset, self.looked[key])
        return self.looked[key]

    def _unreadable(
        self, dataset: Dataset, iterator: DatasetIterator, content: str
    ) -> dict[int, Problem]:
        """Samples whose images cannot be read; checked once for the same bytes."""
        read_as = dataset.model_dump_json(include={"iterator", "mapping", "options", "split"})
        key = hashlib.sha256(f"{LOOK} {content} {read_as}".encode()).hexdigest()[:24]
        file = self.folder / "checked" / f"{key}.json"
        known = derived(file, _problems)
        if known is not None:
            return known
        self.say(f"checking the images of {_name(dataset)}")
        found = {one.index: one.problem for one in unreadable(iterator)}
        write_json(
            file, {str(index): [one.message, one.file, one.line] for index, one in found.items()}
        )
        return found

    def _tell_bad(self, dataset: Dataset, looked: _Looked) -> None:
        """Report that bad samples are skipped, or fail.

        Raises:
            UserError: there are bad samples, and the dataset does not allow to skip them.
        """
        bad = [*looked.rows, *looked.bad.values()]
        if not bad:
            return
        if looked.bad and dataset.on_bad == "fail":
            remedy = "correct them, or set `on_bad: skip` in the dataset's definition"
            first = [Problem(one.message, one.file, one.line) for one in bad[:MOST_SHOWN]]
            what = f"{len(bad)} samples of dataset '{dataset.name}' cannot be read"
            raise UserError(*first, Problem(what, remedy=remedy))
        images = f", {len(looked.bad)} of them without a readable page" if looked.bad else ""
        self.say(
            f"dataset {dataset.name}: {len(bad)} samples are left out{images}, and count against coverage; "
            f"the first: {bad[0]}; `hpcbench data check {dataset.name}` lists all"
        )

    def _model(self, model: Model) -> None:
        if model.name in self.model_hashes:
            return
        if not model.source:
            self.model_hashes[model.name] = "none"
            return
        if not self.hashes:
            self.model_hashes[model.name] = "not hashed"
            return
        self.say(f"hashing model {model.name}")
        folder = Path(model.source)
        self.model_hashes[model.name] = content_hash(folder, folder_files(folder), self.cache)
        _check_weights(model, self.model_hashes[model.name])
        if found := scaling_of(folder):
            self.image_processing[model.name] = found


def scaling_of(folder: Path) -> dict[str, JsonValue]:
    """Settings of the processor beside a model's weights that decide the size of images.

    Args:
        folder: the weights'.

    Returns:
        They, as the processor's configuration has them; empty: there is none, or none that can be read.
    """
    for name in ("preprocessor_config.json", "processor_config.json"):
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # whether the engine needs the file is not decided here
            continue
        if not isinstance(found, Mapping):
            continue
        own = found.get("image_processor")
        settings = own if isinstance(own, Mapping) else found
        if scaling := {key: settings[key] for key in SCALING if key in settings}:
            return scaling
    return {}


def _name(dataset: Dataset) -> str:
    return f"dataset {dataset.name}, {dataset.split or 'all splits'}"


def _engine(model: Model) -> Any:
    """The class of a model's engine; None if it is installed only where the engine runs."""
    try:
        return plugins.load("engines", model.engine)
    except HpcbenchError:
        return None


def _skipped(looked: _Looked, task: RunTaskSettings, ranges: list[tuple[int, int]]) -> int:
    """Number of unusable samples in a run task's part of the dataset.

    With a `limit`, these are the unusable samples before the last sample. A random sample of full size has no
    loss: others were drawn instead. For a row that is no sample it is unknown whether `where` holds.
    """
    asked, wanted = total(ranges), task.limit
    if task.sample is not None:
        wanted = min(task.sample.size, wanted or task.sample.size)
        if asked >= wanted:
            return 0
    rows, images = looked.rows, set(looked.bad)
    if not rows and not images:
        return 0
    if task.where is not None:
        same = task.model_copy(update={"sample": None, "limit": None})
        rows = []
        images &= {
            one for low, high in choose(looked.iterator, same, 0) for one in range(low, high)
        }
    if wanted is not None and asked >= wanted:
        last = ranges[-1][1] - 1
        rows = bad_before(looked.iterator, last) if rows else []
        images = {one for one in images if one < last}
    return len(rows) + len(images)


def _check_prompts(
    run_task: ResolvedRunTask,
    iterator: DatasetIterator,
    ranges: list[tuple[int, int]],
    *,
    sizes: bool,
) -> _Built:
    """Build the prompt of every sample, to find missing fields here and not on a GPU.

    Args:
        run_task: the run task.
        iterator: its dataset.
        ranges: places of its samples.
        sizes: whether to ask the file system for the size of each image.

    Raises:
        UserError: a prompt cannot be built.
    """
    prompt = TaskPrompt(run_task)
    problems, mistakes = list[Problem](), set[Hashable]()
    most, with_images, reuse, seen, names = 0, True, False, set[int](), set[str]()
    image_bytes, largest = 0, ""
    for sample in samples(iterator, ranges, 0, total(ranges), images=False):
        try:
            messages = prompt.build(sample)
            names.add(prompt.name(sample))
            images = [image for message in messages for image in message.images]
            most = max(most, len(images))
            if sizes and (size := sum(map(_bytes_of, images))) > image_bytes:
                image_bytes, largest = size, sample.id
            with_images = with_images and bool(sample.images)
            of_examples = (image for message in messages[:-1] for image in message.images)
            for key in map(_known_as, (*(sample.images or (sample.document,)), *of_examples)):
                reuse = reuse or key in seen
                seen.add(key)
        except UserError as error:
            problems += error.problems
            mistakes |= set(map(mistake, error.problems))
            if len(mistakes) >= MOST_SHOWN:
                break
    if problems:
        raise UserError(*dict.fromkeys(problems))
    return _Built(most if with_images else 0, reuse, frozenset(names), image_bytes, largest)


def _bytes_of(image: Image) -> int:
    """Size of an image, bytes; 0: only reading it would show that, or it cannot be read."""
    if isinstance(image, bytes):
        return len(image)
    try:
        return image.stat().st_size if isinstance(image, Path) else 0
    except OSError:
        return 0


def _check_examples(prompt: Prompt) -> None:
    """Check the images of few-shot examples like the images of samples.

    Raises:
        UserError: an image cannot be read.
    """
    examples = [*prompt.examples, *(shot for one in prompt.prompts for shot in one.examples)]
    names = dict.fromkeys(name for example in examples for name in example.images)
    found = {name: fault_of(Path(name)) for name in names}
    if any(found.values()):
        what = f"prompt '{prompt.name}': the image of an example cannot be read"
        raise UserError(*(Problem(f"{what}: {why}", name) for name, why in found.items() if why))


def _known_as(image: Image | str) -> int:
    """A number for an image, by its name or bytes: a million numbers take little memory."""
    return hash(image.name if isinstance(image, StoredImage) else image)


def _check_whole_hash(dataset: Dataset, cache: Path | None) -> None:
    """Compare the files with the hash in the dataset's definition, which covers all splits."""
    if dataset.content_hash is None:
        return
    whole = open_dataset(dataset.model_copy(update={"split": None}))
    found = content_hash(Path(dataset.source), whole.files(), cache, gone=True)
    if found != dataset.content_hash:
        raise UserError(
            Problem(
                f"dataset '{dataset.name}' is not the one its definition describes: its files hash to "
                f"{found}, not {dataset.content_hash}",
                file=dataset.source,
                remedy="fetch it again, or set content_hash to the new value",
            )
        )


def _check_weights(model: Model, found: str) -> None:
    """Compare the files' hash with the hash in the model's definition."""
    if model.content_hash not in (None, found):
        raise UserError(
            Problem(
                f"model '{model.name}' is not the one its definition describes: its files hash to "
                f"{found}, not {model.content_hash}",
                file=model.source,
                remedy="fetch it again, or set content_hash to the new value",
            )
        )


def _problems(noted: Mapping[str, Sequence[Any]]) -> dict[int, Problem]:
    return {int(index): Problem(*problem) for index, problem in noted.items()}
