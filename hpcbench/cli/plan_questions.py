"""Questions of `hpcbench new`: each has an option, and a question with a default needs no terminal."""

from __future__ import annotations

import argparse
import os
import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.cli.output import say
from hpcbench.cli.questions import ask, ask_several, at_terminal
from hpcbench.cli.start import hint
from hpcbench.errors import UserError
from hpcbench.registry.starter import check_name, plan_name
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.names import id_of
from hpcbench.site.profile import Choice
from hpcbench.submit.first_plan import (
    TINY,
    Candidate,
    Choices,
    Draft,
    for_a_first_look,
)
from hpcbench.submit.preview import size_words

FIRST_LOOK = 50
"""Samples of a first plan without another limit."""

DEMO = "demo_"
"""Prefix of the names of shipped datasets."""

OWN = "own"
"""Answer for a folder that is not yet a dataset."""

SHOWN = 72
"""Columns for a description beside a choice."""


class Questions:
    """Ask for values that no option gives; without a terminal, take the default."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.given = arguments
        self.asking = at_terminal()
        self.choices = Choices(arguments.registry)

    def draft(self) -> Draft | None:
        """All answers except the name; None: data must be added first, and the user knows how.

        Raises:
            UserError: an answer is invalid; without a terminal: an answer is missing.
        """
        ml_task = self._ml_task()
        dataset = self._dataset(ml_task)
        if dataset is None:
            return None
        # Any model serves until the question about models: candidates replace it.
        draft = Draft(ml_task, dataset, self._any_model(), self._prompt(ml_task, dataset))
        draft = replace(draft, model=self._model(draft))
        return replace(draft, metrics=self._metrics(ml_task), limit=self._limit())

    def name(self, draft: Draft) -> str:
        """A name whose file does not exist yet."""
        usual = plan_name(f"{draft.dataset.name}-{draft.model.name.rpartition('/')[2]}")
        number, free = 1, usual
        while os.path.lexists(f"{id_of(free)}.yaml"):
            number += 1
            free = f"{usual}-{number}"
        while self.asking:
            say("\nName of the plan, and of its file")
            name = ask("Name", default=free).removesuffix(".yaml")
            try:
                check_name(name)
            except UserError as error:
                say(f"  {error}")
                continue
            if not os.path.lexists(f"{id_of(name)}.yaml"):
                return name
            say(f"  {id_of(name)}.yaml exists already; choose another name")
        return free

    def _any_model(self) -> Model:
        if self.given.model is not None:
            return self.choices.get(Model, self.given.model)
        return self.choices.plain_model()

    def _ml_task(self) -> MLTask:
        if self.given.ml_task is not None:
            return self.choices.get(MLTask, self.given.ml_task)
        known = {one.name: one for one in self.choices.ml_tasks()}
        if not self.asking:
            raise _missing("--task", list(known))
        shown = [Choice(name, _short(one.description)) for name, one in known.items()]
        first = "vqa" if "vqa" in known else shown[0].value
        say("\nML task: the work that the model does")
        return known[ask("Task", shown, first)]

    def _dataset(self, ml_task: MLTask) -> Dataset | None:
        given = self.given.dataset
        if given is not None:
            if not self.choices.catalog.files("datasets", given) and Path(given).is_dir():
                what = f"{given} is a folder, and --dataset takes the name of a dataset"
                remedy = f"`hpcbench data add {shlex.quote(given)}` makes a dataset from it"
                raise UserError(what, remedy=remedy)
            return self.choices.get(Dataset, given)
        known = {one.name: (one, here) for one, here in self.choices.datasets(ml_task)}
        names = sorted(known, key=lambda name: (not known[name][1], name.startswith(DEMO), name))
        if not self.asking:
            return known[self._only("--dataset", names, ml_task)][0]
        shown = [Choice(name, _of_dataset(*known[name])) for name in names]
        shown.append(Choice(OWN, "your own folder of pages"))
        say(f"\nDatasets that fit {ml_task.name}")
        answer = ask("Dataset", shown, (names or [OWN])[0])
        if answer != OWN:
            return known[answer][0]
        self._lead_to_data(ask("Its folder", default="FOLDER"), ml_task)
        return None

    def _lead_to_data(self, folder: str, ml_task: MLTask) -> None:
        more = "".join(f" --registry {shlex.quote(str(one))}" for one in self.given.registry)
        name = f" {shlex.quote(self.given.name)}" if self.given.name is not None else ""
        say("\nnext:")
        say(hint(f"hpcbench data add {shlex.quote(folder)}", "make a dataset from it"))
        say(hint(f"hpcbench new{name} --task {ml_task.name}{more}", "then choose the new dataset"))

    def _only(self, option: str, names: Sequence[str], ml_task: MLTask) -> str:
        """The only possible answer, without a terminal."""
        if not names:
            what = f"no dataset of the registries fits {ml_task.name}"
            raise UserError(
                what, remedy="`hpcbench data add FOLDER` makes one; --dataset names any other"
            )
        if len(names) > 1:
            raise _missing(option, names)
        say(f"{option} {names[0]}: the only one that fits {ml_task.name}")
        return names[0]

    def _prompt(self, ml_task: MLTask, dataset: Dataset) -> str:
        if self.given.prompt is not None:
            return str(self.given.prompt)
        if found := self.choices.prompt(ml_task, dataset):
            return found
        known = [one for one in self.choices.prompts(ml_task, dataset)]
        if not known or not self.asking:
            raise _missing("--prompt", [one.name for one in known])
        shown = [Choice(one.name, _short(one.description)) for one in known]
        say(f"\nPrompts; {ml_task.name} has no default prompt for {dataset.name}")
        return ask("Prompt", shown, shown[0].value)

    def _model(self, draft: Draft) -> Model:
        if self.given.model is not None:
            return draft.model
        self.choices.check(draft)  # a mistake that needs no model must not exclude models
        every = self.choices.models(draft)
        fitting = every if self.given.all_models else [one for one in every if not one.against]
        out = left_out([one for one in every if one not in fitting])
        if not fitting:
            what = f"no model of the registries fits this site: {out or 'they have none'}"
            remedy = "--model NAME takes one all the same; a model with `engine: remote` needs no GPU here"
            raise UserError(what, remedy=remedy)
        fitting.sort(key=lambda one: (bool(one.against), one.model.parameters_b or 0))
        if not self.asking:
            names = [one.model.name for one in fitting]
            if len(names) > 1:
                raise _missing("--model", names)
            say(
                f"--model {names[0]}: the only one that fits"
                + (f"; left out: {out}" if out else "")
            )
            return fitting[0].model
        shown = [Choice(one.model.name, _of_model(one)) for one in fitting]
        say(f"\nModels{_on_gpus(fitting)}")
        if out:
            say(f"  left out: {out}; `hpcbench new --all-models` lists them")
        if {one.model.name for one in fitting} == {TINY}:
            say("  for a model behind an API use `engine: remote`, see docs/engines.md")
        answer = ask("Model", shown, _proposed(fitting, draft.dataset))
        return next(one.model for one in fitting if one.model.name == answer)

    def _metrics(self, ml_task: MLTask) -> list[str]:
        if self.given.metrics:
            return list(self.given.metrics)
        known = self.choices.metrics(ml_task)
        names = [one.name for one in known]
        usual = [one for one in ml_task.default_metrics or names if one in names]
        if not self.asking:
            return usual
        shown = [Choice(one.name, _short(one.description)) for one in known]
        say(f"\nMetrics of {ml_task.name}")
        return ask_several("Metrics", shown, usual) or usual

    def _limit(self) -> int | None:
        given = self.given.limit
        while given is None and self.asking:
            say("\nMaximum number of samples: a few for a first run, or `all`")
            text = ask("Samples", default=str(FIRST_LOOK))
            given = 0 if text == "all" else int(text) if text.isdecimal() else None
            if given is None:
                say("  give a whole number, or all")
        if given is not None and given < 0:
            raise UserError(f"--limit {given} is negative", remedy="0 takes all samples")
        return FIRST_LOOK if given is None else given or None


def _missing(option: str, names: Sequence[str]) -> UserError:
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    what = f"{option} is missing, and hpcbench asks questions only in a terminal"
    return UserError(what, remedy=f"choices: {listed or 'none that fits'}")


def _short(text: str) -> str:
    return textwrap.shorten(text, SHOWN, placeholder=" …")


# --- texts ----------------------------------------------------------------------------------------------


def left_out(candidates: Sequence[Candidate]) -> str:
    """Number of excluded models, with the reasons; empty: none."""
    counts = Counter(one.about for one in candidates)
    first = {one.about: one for one in reversed(candidates)}
    words = []
    for about, count in sorted(counts.items()):
        if about == "GPUs":
            none = "a GPU, and this machine has none"
            seen = first[about].gpus.count
            words.append(f"{count} need {'more GPUs than this machine has' if seen else none}")
        elif about == "memory":
            words.append(f"{count} need more GPU memory than {_room(first[about])}")
        elif about == "CUDA":
            words.append(f"{count} have an image that needs a newer CUDA than the driver supports")
        else:
            problem = first[about].against
            said = problem.message if problem is not None else ""
            words.append(f"{count} need more than this site has, for example: {said}")
    return ", ".join(words)


def _room(candidate: Candidate) -> str:
    gpus = candidate.gpus
    return (
        f"the {gpus.memory_gb:.0f} GiB of {gpus.source}'s GPUs"
        if gpus.memory_gb
        else "this site has"
    )


def _on_gpus(candidates: Sequence[Candidate]) -> str:
    """GPUs that the models must fit, as text for the question."""
    with_gpus = [one.gpus for one in candidates if one.model.gpus and one.against is None]
    if not with_gpus:
        return ""
    gpus = with_gpus[0]
    kind = f" {gpus.kind}" if gpus.kind else ""
    if gpus.memory_gb is None:
        return f"; the memory of this site's GPUs{kind} is unknown, so hpcbench does not check it"
    return f" that fit GPUs{kind} of {gpus.memory_gb:.0f} GiB"


def _of_dataset(dataset: Dataset, here: bool) -> str:
    count = f"{dataset.samples:,} samples" if dataset.samples is not None else ""
    size = f", {dataset.size_gb:g} GB" if dataset.size_gb is not None else ""
    place = "here" if here else f"to fetch{size}"
    said = textwrap.shorten(dataset.description, SHOWN - 20, placeholder=" …")
    return "; ".join(one for one in (place, count, said) if one)


def _of_model(one: Candidate) -> str:
    model = one.model
    if one.against is not None:
        return _short("does not fit: " + one.against.message.replace(f"model '{model.name}' ", ""))
    parts = []
    if model.parameters_b is not None:
        parts.append(f"{model.parameters_b:g} billion parameters")
    parts.append(f"{model.gpus} GPU{'s' if model.gpus > 1 else ''}" if model.gpus else "no GPU")
    if model.source and one.size is not None:
        size = size_words(one.size).partition(" (")[0]
        parts.append(size if one.size.here else f"to fetch: {size}")
    if model.name == TINY:
        parts.append("reads the demo pages only")
    return ", ".join(parts)


def _proposed(fitting: Sequence[Candidate], dataset: Dataset) -> str:
    """The proposed model: the tiny one for the demo, else a model of a size for a first look."""
    names = [one.model.name for one in fitting]
    if TINY in names and (dataset.name.startswith(DEMO) or len(names) == 1):
        return TINY
    others = [one for one in fitting if one.model.name != TINY] or list(fitting)
    here = [one for one in others if one.size is not None and one.size.here]
    return for_a_first_look([one.model for one in here or others]).name
