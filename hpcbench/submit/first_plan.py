"""Choices for a first plan: datasets that fit an ML task, models that fit into the site's GPUs.

Each candidate goes into a plan of one run task, which is checked as `validate` and `submit --dry-run` check
plans: a candidate that they would refuse is no choice. Nothing is fetched or written.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from hpcbench.data.copies import Cache
from hpcbench.data.datasets import open_dataset
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.experiment.layout import home
from hpcbench.registry.catalog import FOLDERS, Catalog
from hpcbench.registry.fitting_metrics import JUDGE, metrics_of
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.registry.resolve import DefinitionFindings, look_at_text
from hpcbench.registry.starter import plan_text
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Generation, Model
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.shared_types import Resources, seconds
from hpcbench.schema.site import Site
from hpcbench.submit.image_check import Finding, judge
from hpcbench.submit.plan_facts import (
    Facts,
    Gpus,
    Size,
    look,
)
from hpcbench.submit.plan_packages import on_all_gpus
from hpcbench.submit.preview import Preview, preview_of

TINY = "tiny-vlm"
"""The model shipped with hpcbench: it needs no GPU, and reads the demo pages."""

PROMPT_OF_FIELD = {("object", "keys"): "kie_json", ("label", "classes"): "classify"}
"""Output of an ML task and field of a dataset → the prompt that asks by that field."""

UNWRITTEN = Path("new.yaml")
"""Placeholder for the file of a plan that is checked and never written."""

FIRST_MODEL_B = 9.0
"""Billion parameters: the largest fitting model up to this size is proposed."""

CPUS_PER_GPU = 8

ROOM_GB = 32
"""Host memory of a job with GPUs in addition to its weights, GiB."""

EXAMINED = 200
"""Number of samples whose references are read to find their kind."""

LONGEST_LABEL = 60
"""Maximum number of characters of a label."""

DefinitionT = TypeVar("DefinitionT", bound=Definition)

Kind = Literal["answer", "text", "label", "object", "pages", "tests"]
"""Kind of references: answers to questions, texts of pages, classes, fields; pages: numbers of pages; tests:
what only the program of a benchmark's publisher scores."""

_KIND_OF_TASK: Mapping[str, Kind] = {
    "vqa": "answer", "ocr": "text", "classification": "label", "kie": "object",
}  # fmt: skip
_KIND_OF_ITERATOR: Mapping[str, Kind] = {
    "omnidocbench": "text", "cord": "object", "page_tests": "tests",
}  # fmt: skip
_KIND_OF_COLUMN: Mapping[str, Kind] = {"gt_parse": "object"}


@dataclass(frozen=True, slots=True)
class Draft:
    """The user's answers so far; an empty field has a default or is not asked yet."""

    ml_task: MLTask
    dataset: Dataset
    model: Model
    prompt: str = ""
    metrics: Sequence[str] = ()
    limit: int | None = None
    """Maximum number of samples; None: all."""
    name: str = "new"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model, and whether it fits the site."""

    model: Model
    size: Size | None = None
    """Its size and whether it must be fetched; None: unknown, for no plan takes the model."""
    gpus: Gpus = Gpus()
    """The GPUs that it would get."""
    against: Problem | None = None
    """Why it does not fit; None: it fits, as far as known."""
    about: str = ""
    """Subject of the misfit: `CUDA`, `GPUs`, `memory`, or `plan` where no plan takes it."""


class Choices:
    """Finds candidates in the catalogue, for this machine's own site.

    Args:
        registries: further registries; the last one wins.
    """

    def __init__(self, registries: Sequence[Path] = ()) -> None:
        self.catalog = Catalog(registries)
        self.unreadable: dict[str, UserError] = {}
        """`KIND/NAME` → error of an invalid definition, which is no choice."""

    @cached_property
    def site(self) -> Site:
        """The site profile of a plan without `site`."""
        if not self.catalog.files("sites", "default"):
            return Site(name="default")
        return self.catalog.get(Site, "default")

    @cached_property
    def _cache(self) -> Cache:
        return Cache(home(self.site) / "cache", self.site)

    def all(self, kind: type[DefinitionT]) -> Iterator[DefinitionT]:
        """The definitions of a kind, without invalid definitions."""
        for name in self.catalog.names(FOLDERS[kind]):
            try:
                yield self.get(kind, name)
            except UserError as error:
                self.unreadable[f"{FOLDERS[kind]}/{name}"] = error

    def get(self, kind: type[DefinitionT], name: str) -> DefinitionT:
        """One definition, with absolute paths.

        Raises:
            UserError: no definition has that name, or it is invalid.
        """
        return with_absolute_paths(*self.catalog.get_with_source(kind, name))

    def ml_tasks(self) -> list[MLTask]:
        """ML tasks of a first plan: not judges, which rate the answers of another run task."""
        return [one for one in self.all(MLTask) if one.plugin != JUDGE]

    # --- datasets -----------------------------------------------------------------------------------

    def datasets(self, ml_task: MLTask) -> list[tuple[Dataset, bool]]:
        """Datasets that fit an ML task by definitions and first samples, each with whether it is here.

        Raises:
            UserError: no dataset fits, for a reason outside the datasets, such as the site profile.
        """
        found, refused = [], UserError()
        for dataset in self.all(Dataset):
            here = self._here(dataset)
            if here is None and "://" not in dataset.source:
                continue  # its folder is missing, and no fetch can bring it
            if not self._kind_fits(ml_task, dataset, here):
                continue
            problems = self._misfits(ml_task, dataset, here)
            if problems:
                refused = UserError(*problems)
            else:
                found.append((dataset, here is not None))
        if not found and refused.problems:
            raise refused
        return found

    def _here(self, dataset: Dataset) -> Dataset | None:
        found = self._cache.here(dataset)
        return found if found is not None and Path(found.source).exists() else None

    def _kind_fits(self, ml_task: MLTask, dataset: Dataset, here: Dataset | None) -> bool:
        needed = [name for name in (*ml_task.sample_fields, ml_task.label_field) if name]
        if not set(needed) <= set(dataset.fields):
            return False
        wanted, said = _wanted(ml_task), _said(dataset)
        if dataset.ml_task is not None and said != "tests":
            said = _wanted(self.get(MLTask, dataset.ml_task))
        if said is not None:
            return said == wanted
        seen = _seen(here) if here is not None else None
        return seen == wanted or (seen is None and wanted != "pages")

    def _misfits(
        self, ml_task: MLTask, dataset: Dataset, here: Dataset | None
    ) -> tuple[Problem, ...]:
        """Why a plan of the two is refused, with an undemanding model and prompt."""
        draft = Draft(ml_task, dataset, self.plain_model(), self.prompt(ml_task, dataset))
        prompts = [draft.prompt] if draft.prompt else self.catalog.names("prompts")
        problems: tuple[Problem, ...] = ()
        for prompt in prompts:
            found = self.look(replace(draft, prompt=prompt))
            problems = found.problems
            if found.resolved is not None:
                break
        if here is None or found.resolved is None:
            return problems
        from hpcbench.submit.reference_check import (
            check_references,  # evaluation is slow to import: by now the first question is shown
        )

        (run_task,) = found.resolved.run_tasks
        try:
            iterator = open_dataset(here)
            check_references(run_task, iterator, [(0, min(EXAMINED, iterator.count()))])
        except UserError as error:
            return error.problems
        except (
            HpcbenchError,
            OSError,
        ):  # the dataset's package is not built yet, or its files cannot be read now
            return ()
        return ()

    def plain_model(self) -> Model:
        """An undemanding model, used in a draft until the user chooses a model.

        Raises:
            UserError: the catalogue has no readable model.
        """
        names = self.catalog.names("models")
        for name in (TINY, *names):
            with contextlib.suppress(UserError):
                return self.get(Model, name)
        raise UserError("the catalogue has no model", remedy="write models/NAME.yaml")

    # --- prompts ------------------------------------------------------------------------------------

    def prompt(self, ml_task: MLTask, dataset: Dataset) -> str:
        """The default prompt: the dataset's namesake, its fields' prompt, or the ML task's; empty: none."""
        of_fields = [
            prompt
            for (output, name), prompt in PROMPT_OF_FIELD.items()
            if output == ml_task.output and name in dataset.fields
        ]
        own = ml_task.prompts.get(dataset.language or "en")
        if isinstance(ml_task.prompt, str):
            own = ml_task.prompt
        names = [dataset.name, *of_fields, own]
        if ml_task.parser is not None:  # its parser reads answers to its own prompt
            names.insert(0, own)
        for name in names:
            if name is not None and self.catalog.files("prompts", name):
                draft = Draft(ml_task, dataset, self.plain_model(), name)
                if self.look(draft).resolved is not None:
                    return name
        return own or ""

    def prompts(self, ml_task: MLTask, dataset: Dataset) -> list[Prompt]:
        """Prompts that need only fields that the dataset has."""
        model = self.plain_model()
        return [
            prompt
            for prompt in self.all(Prompt)
            if self.look(Draft(ml_task, dataset, model, prompt.name)).resolved is not None
        ]

    # --- models -------------------------------------------------------------------------------------

    def models(self, draft: Draft) -> list[Candidate]:
        """All `readable` models, each checked in a draft, with the reason if it does not fit.

        Args:
            draft: ML task, dataset and prompt.
        """
        known = self.readable(draft.ml_task)
        found: dict[str, Candidate] = {}
        plans: dict[str, ResolvedPlan] = {}
        for number, model in enumerate(known):
            seen = self.look(replace(draft, model=model, name=f"m{number}"))
            if seen.resolved is None:
                found[model.name] = Candidate(model, against=seen.problems[0], about="plan")
            else:
                plans[model.name] = seen.resolved
        if plans:
            facts = self._facts(list(plans.values()))
            for name, plan in plans.items():
                found[name] = _candidate(plan, facts)
        return [found[model.name] for model in known]

    def readable(self, ml_task: MLTask) -> list[Model]:
        """Models whose answers an ML task reads; a parser named like an engine reads only its answers.

        A model with `tasks` was made for them, so it reads answers of no other ML task.
        """
        parsers = {one.parser: one.plugin for one in self.all(MLTask) if one.parser is not None}
        every = list(self.all(Model))
        own = {
            model.name: next((one for one in parsers if model.engine.startswith(one)), None)
            for model in every
        }
        of_one_engine = ml_task.parser is not None and ml_task.parser in own.values()

        def reads(parser: str | None) -> bool:
            if parser is None:
                return not of_one_engine
            return ml_task.plugin == parsers[parser] and ml_task.parser in (parser, None)

        return [
            model
            for model in every
            if reads(own[model.name]) and (not model.tasks or ml_task.name in model.tasks)
        ]

    def metrics(self, ml_task: MLTask) -> list[Metric]:
        """The metrics of an ML task; those that it proposes come first."""
        names = dict.fromkeys((*ml_task.default_metrics, *metrics_of(self.catalog, ml_task)))
        return [self.get(Metric, name) for name in names if self.catalog.files("metrics", name)]

    def _facts(self, plans: Sequence[ResolvedPlan]) -> Facts:
        run_tasks = tuple(run_task for plan in plans for run_task in plan.run_tasks)
        return look(plans[0].model_copy(update={"run_tasks": run_tasks}), self._cache)

    # --- the plan -----------------------------------------------------------------------------------

    def look(
        self, draft: Draft, path: Path = UNWRITTEN, *, locks: bool = False
    ) -> DefinitionFindings:
        """Check the plan of a draft, as `hpcbench validate` does."""
        return look_at_text(self.text(draft), path, self.catalog, locks=locks)

    def text(self, draft: Draft, comment: str = "") -> str:
        """The plan of a draft as YAML."""
        return plan_text(
            draft.name,
            ml_task=draft.ml_task.name,
            model=draft.model.name,
            dataset=draft.dataset.name,
            prompt=_prompt(draft),
            metrics=draft.metrics,
            comment=comment,
            limit=draft.limit,
            generation=_generation(draft),
            resources=_resources(draft.model, self.site),
        )

    def check(self, draft: Draft, path: Path = UNWRITTEN) -> ResolvedPlan:
        """The plan of a draft with its names resolved.

        Raises:
            UserError: every mistake except locks; mistakes of the plan itself have no place, for it is not
                written yet.
        """
        found = self.look(draft, path)
        if found.resolved is None:
            raise UserError(*(_placeless(one, path) for one in found.problems))
        return found.resolved

    def preview(self, draft: Draft, path: Path) -> Preview:
        """The preview of `submit --dry-run` for a draft.

        Raises:
            UserError: see `check`; or the data that is here does not fit the plan.
        """
        resolved = self.check(draft, path)
        unlocked = self.look(draft, path, locks=True).problems
        try:
            return preview_of(on_all_gpus(resolved), unlocked, path)
        except UserError as error:
            raise UserError(*(_placeless(one, path) for one in error.problems)) from None


def for_a_first_look(models: Sequence[Model]) -> Model:
    """The largest model up to `FIRST_MODEL_B` of some fitting models; the first where all are larger."""
    small = [one for one in models if (one.parameters_b or 0) <= FIRST_MODEL_B]
    return max(small, key=lambda one: one.parameters_b or 0) if small else models[0]


# --- datasets -----------------------------------------------------------------------------------------


def _wanted(ml_task: MLTask) -> Kind:
    if "question" in ml_task.sample_fields:
        return "answer"
    return "pages" if ml_task.plugin == "vqa" else ml_task.output


def _said(dataset: Dataset) -> Kind | None:
    """Kind of a dataset's references by its definition; None: not given."""
    if "question" in dataset.fields:
        return "answer"
    if isinstance(task := dataset.options.get("task"), str) and task in _KIND_OF_TASK:
        return _KIND_OF_TASK[task]
    column = str(dataset.mapping.references or "").rpartition(".")[2]
    return _KIND_OF_ITERATOR.get(dataset.iterator) or _KIND_OF_COLUMN.get(column)


def _seen(dataset: Dataset) -> Kind | None:
    """Kind of a dataset's first references; None: unknown."""
    try:
        iterator = open_dataset(dataset)
        count = min(EXAMINED, iterator.count())
        found = [one.references[0] for one in iterator.iter(0, count) if one.references]
    except (HpcbenchError, OSError):
        return None
    if not found:
        return None
    if all(isinstance(one, Mapping) or str(one).lstrip().startswith("{") for one in found):
        return "object"
    texts = [str(one) for one in found]
    if all(re.fullmatch(r"\d+([\s,;]+\d+)+", one.strip()) for one in texts):
        return "pages"
    if len(texts) < 6:
        return None
    short = all(len(one) <= LONGEST_LABEL and "\n" not in one for one in texts)
    return "label" if short and 3 * len(set(texts)) <= len(texts) else "text"


# --- models -------------------------------------------------------------------------------------------


def _candidate(plan: ResolvedPlan, facts: Facts) -> Candidate:
    (run_task,) = plan.run_tasks
    known = facts.models[run_task.name]
    findings: tuple[Finding, ...] = judge(plan, facts)
    first = max(findings, key=lambda one: one.certain, default=None)
    if first is None:
        return Candidate(run_task.model, known.size, known.gpus)
    return Candidate(run_task.model, known.size, known.gpus, first.problem, first.about)


def _prompt(draft: Draft) -> str:
    """The plan's prompt; empty: the one of the model's authors, which a plan without prompt uses."""
    own = None if draft.model is None else draft.model.tasks.get(draft.ml_task.name)
    return draft.prompt if own is None or own.prompt is None else ""


def _generation(draft: Draft) -> dict[str, Any] | None:
    """Options for a shorter answer where the usual length would leave no space for the prompt."""
    if draft.model is not None and draft.ml_task.name in draft.model.tasks:
        return None
    usual = draft.ml_task.max_tokens or Generation().max_tokens
    context = draft.model.context_length
    if context is None or usual < context:
        return None
    return {"max_tokens": max(1, context // 4)}


def _resources(model: Model, site: Site) -> dict[str, Any] | None:
    """A job's resources, limited by the partition; None: the defaults of plans suffice."""
    if site.executor != "slurm":
        return None
    need = Resources()
    cpus, memory, limit = need.cpus, need.memory_gb, need.time_limit
    if model.gpus and model.engine != "remote":
        weights = (model.size_gb or 2 * (model.parameters_b or 0)) * 1e9 / 2**30
        cpus, memory = CPUS_PER_GPU * model.gpus, 8 * math.ceil((ROOM_GB + weights) / 8)
    partition = site.slurm.partition_of()
    if partition is not None:
        cpus = min(cpus, partition.cpus or cpus)
        memory = min(memory, partition.memory_gb or memory)
        if partition.time_limit and seconds(partition.time_limit) < seconds(limit):
            limit = partition.time_limit
    made = {"cpus": cpus, "memory_gb": memory, "time_limit": limit}
    return made if made != need.model_dump(include=set(made)) else None


def _placeless(problem: Problem, path: Path) -> Problem:
    """The problem without its place if it is in the unwritten plan, whose lines the user cannot see."""
    if problem.file != str(path):
        return problem
    return Problem(problem.message, remedy=problem.remedy)
