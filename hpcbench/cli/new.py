"""`hpcbench new`: a first plan by a few questions, checked before it is written."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.cli.output import say
from hpcbench.cli.questions import at_terminal
from hpcbench.cli.start import hint
from hpcbench.errors import UserError
from hpcbench.registry.registry_dirs import share_dir
from hpcbench.registry.starter import check_name
from hpcbench.schema.names import id_of

if TYPE_CHECKING:
    from hpcbench.submit.first_plan import Draft
    from hpcbench.submit.preview import Preview


def new(arguments: argparse.Namespace) -> int:
    """`hpcbench new [NAME]`."""
    name, target = _named(arguments.name, arguments.out)
    if target is not None and not arguments.dry_run:
        _refuse_existing(target)
    if at_terminal():
        say("Enter accepts the answer in brackets. Ctrl-C ends without writing a file.")
    # The following imports take a second; the user reads the line above meanwhile.
    from hpcbench.cli.plan_questions import Questions
    from hpcbench.files.atomic import create_whole

    questions = Questions(arguments)
    draft = questions.draft()
    if draft is None:
        return 0
    name = name or questions.name(draft)
    target = target or Path(f"{id_of(name)}.yaml")
    draft = replace(draft, name=name)
    preview = questions.choices.preview(draft, target)
    schema = share_dir() / "registries/schemas/experiments.json"
    comment = f"yaml-language-server: $schema={schema}\n"
    comment += "A first plan, by `hpcbench new`. All fields: `hpcbench schema experiments`"
    text = questions.choices.text(draft, comment)
    if arguments.dry_run:
        print(text, end="")
    elif not create_whole(target, text.encode()):
        _refuse_existing(target)
    _tell(preview, draft, None if arguments.dry_run else target, arguments.registry)
    return 0


# --- name and file --------------------------------------------------------------------------------------


def _named(name: str | None, out: Path | None) -> tuple[str | None, Path | None]:
    """Name and file of the plan, as far as given; `plans/mine.yaml` as a name gives both."""
    if name is not None and name.endswith((".yaml", ".yml")):
        out, name = out or Path(name), None
    if name is None and out is not None:
        name = out.stem
    if name is None:
        return None, None
    check_name(name)
    return name, out or Path(f"{id_of(name)}.yaml")


def _refuse_existing(path: Path) -> None:
    if path.is_dir():
        raise UserError("is a folder", file=path, remedy="name a file: --out FILE.yaml")
    if os.path.lexists(path):
        raise UserError("this file exists already", file=path, remedy="choose another NAME")


# --- output ---------------------------------------------------------------------------------------------


def _tell(preview: Preview, draft: Draft, path: Path | None, registries: Sequence[Path]) -> None:
    """Print the written plan, missing downloads, warnings, and the next commands."""
    count = preview.samples(draft.name)
    known = count is not None and draft.name not in preview.unknown
    samples = f"{count} samples" if known else f"at most {draft.limit} samples"
    samples = samples if known or draft.limit else "all samples"
    written = f"wrote {path}" if path is not None else "dry run, not written"
    line = (
        f"{written}: {draft.ml_task.name} on {draft.dataset.name} by {draft.model.name}, {samples}"
    )
    (say if path is None else print)(f"{line}; prompt {draft.prompt}")
    for text in _to_fetch(preview, draft):
        say(f"  to fetch: {text}")
    for one in preview.findings:
        say(f"! {'submit will refuse it: ' if one.certain else ''}{one.problem}")
    for problem in preview.unlocked:
        say(f"! fix before submission: {problem}")
    if path is None:
        return
    more = "".join(f" --registry {shlex.quote(str(one))}" for one in registries)
    file = shlex.quote(str(path))
    print("next:")
    for command, text in _to_lock(preview, draft):
        print(hint(f"{command}{more}", text))
    print(hint(f"hpcbench submit {file} --dry-run{more}", "show its jobs, change nothing"))
    print(hint(f"hpcbench submit {file} --wait{more}", "run it, and print the scores"))


def _to_lock(preview: Preview, draft: Draft) -> Iterator[tuple[str, str]]:
    """Commands that RUN_MODE=prod requires before it accepts the plan, each with its effect."""
    remedies = [problem.remedy or "" for problem in preview.unlocked]
    commands = [one for text in remedies for one in re.findall(r"`(hpcbench [^`]+)`", text)]
    verify = f"hpcbench models verify {draft.model.name}"
    if verify in commands and not preview.facts.models[draft.name].size.here:
        yield f"hpcbench models fetch {draft.model.name}", "fetch its weights"
    for command in dict.fromkeys(commands):
        yield command, "lock the version"


def _to_fetch(preview: Preview, draft: Draft) -> Iterator[str]:
    from hpcbench.submit.preview import size_words

    known, data = preview.facts.models[draft.name], preview.facts.datasets[draft.dataset.name]
    if not data.here:
        yield f"dataset {draft.dataset.name}, {size_words(data)}"
    if known.model.source and not known.size.here:
        yield f"model {draft.model.name}, {size_words(known.size)}"
    reference = known.image.reference
    if reference is not None and not known.image.size.here:
        yield f"image {reference.partition('@')[0]}, {size_words(known.image.size)}"
