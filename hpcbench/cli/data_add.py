"""`hpcbench data add`: turn a folder, table, archive or URL into a dataset with a plan that runs."""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpcbench.cli.data import site_of
from hpcbench.cli.first_model import choose_model
from hpcbench.cli.output import say, transfer_bar
from hpcbench.cli.questions import ask, ask_several, at_terminal
from hpcbench.data.archives import inner, is_archive, stem_of, unpack
from hpcbench.data.column_roles import RoleChoices, Roles, column_named
from hpcbench.data.datasets import bad_rows, open_dataset, unreadable
from hpcbench.data.detect import (
    TABLES,
    Detected,
    Table,
    beside_or_above,
    find_table,
    known_layout,
    why_no_table,
)
from hpcbench.errors import Problem, UserError, nearest, unknown
from hpcbench.files.atomic import write_atomic
from hpcbench.number_format import percent
from hpcbench.plugins import DatasetIterator
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.resolve import load_plan
from hpcbench.registry.starter import plain_name, plan_text
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.forms import FORMS
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.names import NAME, id_of, is_name
from hpcbench.site.profile import Choice
from hpcbench.submit.local_data import open_cache
from hpcbench.submit.measure import measure

TASKS = {
    "vqa": "a question and its answer",
    "kie": "one JSON object with named fields",
    "ocr": "the whole text",
    "classification": "one of several classes",
}
"""Proposed ML tasks → form of an answer."""

PAGES = "pages"
"""Name of the link to the folder of pages, if the table of answers is elsewhere."""

EXAMINED = 10_000
"""Number of samples whose pages are checked."""

COUNTED = 50
"""Number of samples whose pages are counted."""


@dataclass
class _Location:
    """Location of a dataset."""

    source: str
    """Source in its definition."""
    folder: Path
    """Its folder on this machine."""
    annotations: str = ""
    """Path of its table inside the folder; empty: not known yet."""
    links: dict[str, Path] | None = None
    """Links to create for a folder of links, which does not exist yet; None: an ordinary folder."""


@dataclass
class _Draft:
    """Texts to be written."""

    dataset: str
    plan: str
    notes: list[str]
    unlocked: str = ""
    """Why `submit` accepts the plan only in RUN_MODE=dev; empty: it accepts the plan as it is."""


def add(arguments: argparse.Namespace) -> int:
    """`hpcbench data add SOURCE`: inspect it, ask at a terminal, write dataset and plan."""
    name = _name(arguments)
    definition, plan = _targets(arguments, name)
    if not arguments.dry_run and not arguments.force:
        _refuse_existing(definition, plan)
    with contextlib.ExitStack() as stack:
        place = _place(arguments, name, stack)
        found, columns = _detected(arguments, place)
        draft = _draft(arguments, name, place, found)
    if columns is not None and not at_terminal():  # a terminal has shown them before the questions
        _show(*columns)
    for note in dict.fromkeys(draft.notes):
        say(note)
    if arguments.dry_run:
        print(f"# {definition}\n{draft.dataset}\n# {plan}\n{draft.plan}", end="")
        return 0
    if place.links is not None:
        _make_links(Path(place.source), place.links)
    write_atomic(definition, draft.dataset)
    write_atomic(plan, draft.plan)
    _print_next(arguments, name, definition, plan, draft.unlocked)
    return 0


def _print_next(
    arguments: argparse.Namespace, name: str, definition: Path, plan: Path, unlocked: str
) -> None:
    # `./registries` counts without being named.
    own = arguments.out.resolve() == Path("registries").resolve()
    more = "" if own else f" --registry {_quoted(arguments.out)}"
    if unlocked:
        say(f"only in RUN_MODE=dev: {unlocked}")
    print(f"wrote {definition} and {plan}; next:")
    print(f"  {'RUN_MODE=dev ' if unlocked else ''}hpcbench submit {_quoted(plan)}{more}")
    print("to check it first:")
    print(f"  hpcbench data check {name}{more}")
    print(f"  hpcbench prompts show {name} --plan {_quoted(plan)}{more}")


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


# --- location -------------------------------------------------------------------------------------------


def _name(arguments: argparse.Namespace) -> str:
    name: str | None = arguments.name
    if name is None:
        place = arguments.source
        if "://" not in place:
            place = str(Path(place).expanduser().resolve())
        last = Path(place.rstrip("/").rpartition("/")[2].partition("?")[0])
        if is_archive(last) or last.suffix.lower() in TABLES:
            last = (
                Path(stem_of(last)).with_suffix("") if not is_archive(last) else Path(stem_of(last))
            )
        plain = plain_name(str(last), "_", empty="").lower()
        return plain or (last.name.lower() if is_name(last.name) else "unnamed")
    if not is_name(name):
        what = f"--name {name!r}: a name must be {FORMS[NAME]}"
        raise UserError(what, remedy=f"--name {plain_name(name, '_')}")
    return name


def _path(name: str) -> str:
    """Path for a name: the id of each of its parts."""
    return "/".join(map(id_of, name.split("/")))


def _targets(arguments: argparse.Namespace, name: str) -> tuple[Path, Path]:
    """Paths of the dataset's definition and of the plan, which is beside the registry."""
    out: Path = arguments.out
    plan = f"{_path(name).replace('/', '-')}-plan.yaml"
    return out / "datasets" / f"{_path(name)}.yaml", out.parent / plan if out.name else out / plan


def _refuse_existing(definition: Path, plan: Path) -> None:
    for path, what in ((definition, "definition"), (plan, "plan")):
        if path.exists() or path.is_symlink():
            remedy = "--force replaces definition and plan; or choose another --name"
            raise UserError(f"this {what} exists already", file=path, remedy=remedy)


def _place(arguments: argparse.Namespace, name: str, stack: contextlib.ExitStack) -> _Location:
    source, given = arguments.source, arguments.annotations
    if "://" in source:
        made = Dataset.model_validate({"name": name, "source": source})
        with transfer_bar() as progress:
            here = open_cache(site_of(arguments), progress).local(made)
        folder = Path(here.source)
        files = [path for path in folder.rglob("*") if path.is_file()]
        if len(files) == 1 and is_archive(files[0]):
            place = _unpacked(arguments, files[0], arguments.out / "data" / _path(name), stack)
        else:
            place = _Location(source, folder)
    else:
        place = _local(arguments, Path(source).expanduser(), name, stack)
    return place if given is None else _with_annotations(arguments, place, name, stack)


def _local(
    arguments: argparse.Namespace, path: Path, name: str, stack: contextlib.ExitStack
) -> _Location:
    if not path.exists():
        raise UserError("no such file or folder", file=path, remedy="check the path")
    path = path.resolve()
    if path.is_dir():
        if path == Path(path.anchor):
            raise UserError(
                "is the root of the file system", file=path, remedy="name a folder of pages"
            )
        return _Location(str(path), path)
    if path.suffix.lower() in TABLES:
        return _Location(str(path.parent), path.parent, path.name)
    if is_archive(path):
        return _unpacked(arguments, path, path.parent / stem_of(path), stack)
    what = "is not a folder, table or archive"
    raise UserError(what, file=path, remedy="name the folder of the pages")


def _unpacked(
    arguments: argparse.Namespace, archive: Path, target: Path, stack: contextlib.ExitStack
) -> _Location:
    """An archive's files in a separate folder; a dry run uses a temporary one."""
    if arguments.dry_run and not target.exists():
        inside = Path(stack.enter_context(tempfile.TemporaryDirectory())) / target.name
        unpack(archive, inside)
        folder = inner(inside)
        return _Location(str(target / folder.relative_to(inside)), folder)
    done = unpack(archive, target)
    say(f"{archive.name}: {'unpacked into' if done else 'already unpacked in'} {target}")
    folder = inner(target).resolve()
    return _Location(str(folder), folder)


def _with_annotations(
    arguments: argparse.Namespace, place: _Location, name: str, stack: contextlib.ExitStack
) -> _Location:
    """The place with the table of `--annotations`: a path in the folder, or a file elsewhere."""
    given = Path(arguments.annotations).expanduser()
    inside = place.folder / given
    if inside.is_file() and inside.resolve().is_relative_to(place.folder.resolve()):
        return _Location(place.source, place.folder, inside.relative_to(place.folder).as_posix())
    if not given.exists():
        what = f"no such file here or in {place.source}"
        raise UserError(what, file=given, remedy="check the path")
    given = given.resolve()
    if not given.is_file():
        raise UserError("is not a file", file=given, remedy="name a table, such as answers.csv")
    if given.is_relative_to(place.folder):
        return _Location(place.source, place.folder, given.relative_to(place.folder).as_posix())
    if "://" in place.source:
        remedy = f"copy it to {place.source}, beside the pages"
        raise UserError(f"is not in {place.source}", file=given, remedy=remedy)
    links = {PAGES: Path(place.source), given.name: given}
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    _make_links(folder, {**links, PAGES: place.folder})
    target = (arguments.out / "data" / _path(name)).resolve()
    if not arguments.dry_run and target.exists():
        raise UserError("this folder exists already", file=target, remedy="choose another --name")
    return _Location(str(target), folder, given.name, links)


def _make_links(folder: Path, links: dict[str, Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in links.items():
        (folder / name).symlink_to(target)


# --- layout ---------------------------------------------------------------------------------------------


def _detected(
    arguments: argparse.Namespace, place: _Location
) -> tuple[Detected, tuple[Table, Roles] | None]:
    """The layout, or the table with the roles of its columns; and the columns to show."""
    if arguments.task is not None:
        _check_task(arguments)
    answers = arguments.answer
    asked = bool(place.annotations or answers or arguments.question)
    if not asked and (known := known_layout(place.folder)) is not None:
        return _with_task(known, arguments.task), None
    table = find_table(place.folder, place.annotations)
    if table is not None and arguments.question is not None:
        _check_question(arguments.question, table)
    wish = RoleChoices(
        _listed(answers, table) if answers else None, arguments.question, arguments.task
    )
    roles = table.propose(wish) if table is not None else None
    if table is None or roles is None or not (roles.answers or at_terminal()):
        if not asked or table is None:
            with contextlib.suppress(UserError):
                return _with_task(beside_or_above(place.folder), arguments.task), None
        raise _no_table(place, table, roles)
    if at_terminal():
        _show(table, roles)
        roles = _ask(arguments, table, roles, wish)
    if not roles.answers:
        raise _no_table(place, table, roles)
    return table.detected(roles), (table, roles)


def _no_table(place: _Location, table: Table | None, roles: Roles | None) -> UserError:
    if table is None:
        try:
            beside_or_above(place.folder)
        except UserError as error:
            return error
        what = "contains no table, but an option names a column"
        return UserError(what, file=place.source, remedy="name the table: --annotations FILE")
    if roles is None:
        return why_no_table(place.folder, table)
    known = ", ".join(one.name for one in table.columns)
    sparse = "".join(f"; '{name}' is {why}" for name, why in roles.sparse.items())
    what = f"no column has the name or the values of an answer (columns: {known}{sparse})"
    return UserError(what, file=place.folder / table.name, remedy="--answer COLUMN")


def _check_task(arguments: argparse.Namespace) -> None:
    registries = [arguments.out] if arguments.out.is_dir() else []
    Catalog(registries).get(MLTask, arguments.task)


def _with_task(found: Detected, task: str | None) -> Detected:
    if task is not None and task != found.task:
        found.task, found.prompt, found.metrics = task, "", ()
    return found


def _check_question(question: str, table: Table) -> None:
    """Refuse a word that is nearly a column: it would be asked of every page."""
    columns = {one.name: one for one in table.columns}
    close = nearest(question, columns)
    if (
        close
        and not column_named(question, columns)
        and len(question.split()) <= len(close.split())
    ):
        remedy = "for a question to all pages, write a sentence"
        raise UserError(Problem(unknown("column", question, columns), remedy=remedy))


def _listed(answers: str, table: Table | None) -> list[str]:
    """Columns that `--answer` names; a name may contain a comma."""
    columns = {one.name: one for one in table.columns} if table is not None else {}
    if answers in columns:
        return [answers]
    names = [one.strip() for one in answers.split(",") if one.strip()]
    wrong = [one for one in names if columns and not column_named(one, columns)]
    if wrong or not names:
        raise UserError(*(Problem(unknown("column", one, columns)) for one in wrong or [answers]))
    return list(dict.fromkeys(names))


# --- columns, and questions about them ------------------------------------------------------------------


def _show(table: Table, roles: Roles) -> None:
    """Show the columns, their content, and their proposed roles."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as Drawn

    out = Console(stderr=True, highlight=False)
    out = out if out.is_terminal else Console(stderr=True, highlight=False, width=120)
    lines = f"{table.name or 'saved dataset'}: {table.rows} rows"
    say(lines + (" checked" if table.rows >= 10_000 else ""))
    drawn = Drawn(box=None, pad_edge=False, header_style="dim")
    for title in ("column", "filled", "distinct", "example", "use"):
        right = title in ("filled", "distinct")
        drawn.add_column(title, justify="right" if right else "left", no_wrap=title == "example")
    for one in table.columns:
        share = f"{100 * one.filled // max(1, table.rows)} %"
        example = one.example if len(one.example) <= 32 else f"{one.example[:31]}…"
        row = (one.name, share, str(one.distinct), example, roles.of(one.name))
        drawn.add_row(
            *(escape("".join(c if c.isprintable() else "?" for c in cell)) for cell in row)
        )
    out.print(drawn)


def _ask(arguments: argparse.Namespace, table: Table, roles: Roles, wish: RoleChoices) -> Roles:
    """Roles by a user's answers; the proposal is the default of each question."""
    choices = [Choice(one.name, one.example[:40]) for one in table.columns if one.kind != "nothing"]
    answers = wish.answers
    if answers is None:
        picked = ask_several("Columns of the right answer", choices, roles.answers)
        answers = picked if picked != roles.answers else None
    roles = _proposed(table, roles, RoleChoices(answers, wish.question, wish.task))
    task = wish.task
    if task is None and roles.answers:
        task = ask("Task", [Choice(*one) for one in TASKS.items()], roles.task)
    question = wish.question
    if question is None and task == "vqa":
        default = roles.question or roles.asked or ""
        question = (
            ask("Question: a column, or one text for all samples", choices, default, free=True)
            or None
        )
    roles = _proposed(table, roles, RoleChoices(answers, question, task))
    groups = [Choice(name) for name in roles.metadata]
    picked = ask_several("Columns that reports group by", groups, roles.groups) if groups else []
    return _proposed(table, roles, RoleChoices(answers, question, task, picked))


def _proposed(table: Table, roles: Roles, wish: RoleChoices) -> Roles:
    return table.propose(wish) or roles


# --- files ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Samples that a dataset leaves out."""

    rows: int = 0
    """Rows that are no samples."""
    samples: int = 0
    """Samples with unreadable pages."""


DEFAULT_COVERAGE: float = ExperimentPlan.model_fields["min_coverage"].default
"""Smallest coverage of a plan that does not say it."""


def _draft(arguments: argparse.Namespace, name: str, place: _Location, found: Detected) -> _Draft:
    """Dataset and plan, checked as `submit` would, before any file is written.

    Raises:
        UserError: no sample can be read, or the plan is invalid.
    """
    task = found.task or arguments.task or "ocr"
    say(f"{found.why}: iterator {found.iterator}, ML task {task}")
    head = {"schema_version": 1, "name": name, "source": place.source, "iterator": found.iterator}
    definition = {**head, **found.definition}
    here = Dataset.model_validate({**definition, "source": str(place.folder)})
    iterator, notes, left_out = _opened(arguments, here, definition, found)
    count = iterator.count()
    reachable = (count - left_out.samples) / (count + left_out.rows)
    least = None if reachable >= DEFAULT_COVERAGE else math.floor(reachable * 90) / 100
    if least is not None:
        notes.append(
            f"the plan says min_coverage: {least:g}: at most {percent(reachable)} of the rows can be "
            f"scored, and the default of {percent(DEFAULT_COVERAGE)} would call each run incomplete"
        )
    images = _most_images(iterator, count)
    say(f"{count} samples" + (f", up to {images} pages each" if images > 1 else ""))
    model = choose_model(arguments, task, found.prompt)
    split = "test" if "test" in found.definition.get("splits", ()) else None
    plan = plan_text(
        name.replace("/", "-"),
        ml_task=task,
        model=model.entry,
        dataset=name,
        prompt=model.prompt,
        metrics=found.metrics,
        comment=f"{_made_from(arguments.source)}\n{model.comment}",
        min_coverage=least,
        split=split,
        generation=model.generation,
        resources=model.resources,
    )
    if split is not None:
        notes.append(
            f"the plan uses only split '{split}'; remove `split` from the plan to use all splits"
        )
    text = f"# {found.why}\n".replace("\r", " ") if found.why.isprintable() else ""
    text += yaml.safe_dump(definition, sort_keys=False, allow_unicode=True, width=110)
    unlocked = _validate(arguments, name, {**definition, "source": str(place.folder)}, plan)
    return _Draft(text, plan, [*found.notes, *notes, *model.notes], unlocked)


def _made_from(source: str) -> str:
    return f"Made by `hpcbench data add` from {source if source.isprintable() else 'a folder'}."


def _opened(
    arguments: argparse.Namespace, here: Dataset, definition: dict[str, Any], found: Detected
) -> tuple[DatasetIterator, list[str], _LeftOut]:
    """The opened dataset. Rows that cannot be samples are left out; the definition and a note say so."""
    cache = open_cache(site_of(arguments))
    iterator = open_dataset(here.model_copy(update={"on_bad": "skip"}), cache.folder)
    iterator.count()
    bad = bad_rows(iterator)
    mapping = definition.get("mapping", {})
    if mapping.get("id", "#") != "#" and any(one.message.endswith("twice") for one in bad):
        mapping["id"] = "#"
        return _opened(
            arguments, here.model_copy(update={"mapping": _mapped(mapping)}), definition, found
        )
    count = iterator.count()
    broken = list(unreadable(iterator, EXAMINED))
    if not bad and not broken:
        return iterator, [], _LeftOut()
    first = str(broken[0].problem if broken else bad[0]).replace(f"{here.source}/", "")
    if len(broken) >= count:
        what = f"the pages of all {count} samples are unreadable; the first: {first}"
        raise UserError(what, file=definition["source"], remedy="put readable pages there")
    definition["on_bad"] = "skip"
    notes = []
    if broken:
        what = f"{len(broken)} of {count} samples with unreadable pages"
        notes.append(f"left out: {what} (first: {first})")
    if bad:
        first = str(bad[0]).replace(f"{here.source}/", "")
        notes.append(f"left out: {len(bad)} rows that are not samples (first: {first})")
    return iterator, notes, _LeftOut(len(bad), len(broken))


def _mapped(mapping: dict[str, Any]) -> Any:
    return Dataset.model_validate({"name": "x", "source": "x", "mapping": mapping}).mapping


def _most_images(iterator: DatasetIterator, count: int) -> int:
    """Largest number of images of a sample, among the first samples."""
    return max((len(one.images) for one in iterator.iter(0, min(count, COUNTED))), default=0)


def _validate(
    arguments: argparse.Namespace, name: str, definition: dict[str, Any], plan: str
) -> str:
    """Resolve the plan and build its prompts, as `validate` and `submit --dry-run` do.

    Returns:
        The lock that RUN_MODE=prod also requires; empty: none.

    Raises:
        UserError: the plan is invalid.
    """
    with tempfile.TemporaryDirectory() as folder:
        registry, path = Path(folder) / "registry", Path(folder) / "plan.yaml"
        place = registry / "datasets" / f"{_path(name)}.yaml"
        place.parent.mkdir(parents=True)
        place.write_text(yaml.safe_dump(definition, allow_unicode=True), encoding="utf-8")
        path.write_text(plan, encoding="utf-8")
        registries = [*([arguments.out] if arguments.out.is_dir() else []), registry]
        try:
            resolved = load_plan(path, registries, locks=False)
            measure(resolved, hashes=False)
        except UserError as error:
            reworded = (_of_proposal(problem, folder) for problem in error.problems)
            raise UserError(*reworded) from error
        try:
            load_plan(path, registries)
        except UserError as error:
            first = error.problems[0]
            return f"{first.message} ({first.remedy})"
    return ""


def _of_proposal(problem: Problem, folder: str) -> Problem:
    """A problem of files that are not written yet, without their paths."""
    if problem.file is None or not problem.file.startswith(folder):
        return problem
    remedy = problem.remedy or "choose with --task, --answer, --question"
    return Problem(problem.message, remedy=remedy)
