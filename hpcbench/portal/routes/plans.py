"""Routes of plans and their definitions: read, check, write, submit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response

from hpcbench import secret
from hpcbench.portal.context import Here, Portal, experiment_of, once
from hpcbench.portal.faults import PortalFault, refused
from hpcbench.portal.lru import LruCache
from hpcbench.portal.models.plans import (
    ActionAsked,
    CheckAsked,
    Checked,
    Choice,
    Definition,
    DefinitionKind,
    DefinitionRow,
    DefinitionText,
    Estimate,
    Expanded,
    NewDefinition,
    Note,
    Starter,
    SubmissionAsked,
    Submitted,
)
from hpcbench.portal.models.run_tasks import CommandLine
from hpcbench.portal.plan_checks import Checker
from hpcbench.portal.plan_choices import choices_in
from hpcbench.portal.plan_starters import STARTERS
from hpcbench.portal.routes import new_router
from hpcbench.portal.user_commands import UserCommands
from hpcbench.portal.user_definitions import (
    Definitions,
    File,
    as_bytes,
    tag,
)
from hpcbench.schema.describe import json_schema

router = new_router("plans")

DONE = "hpcbench.what"
"""Key of a request's scope: the route's description of its change, for the log of changes."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Objects that these routes keep between requests."""

    definitions: Definitions
    checker: Checker
    commands: UserCommands
    choices: LruCache[tuple[Choice, ...]] = field(default_factory=lambda: LruCache(1))


@once
def desk_of(portal: Here) -> Desk:
    """The desk of a portal."""
    options = portal.options
    definitions = Definitions(options.plans, options.may_edit, options.umask)
    commands = UserCommands(portal.home, definitions, umask=options.umask)
    return Desk(definitions, Checker(definitions.plans), commands)


AtDesk = Annotated[Desk, Depends(desk_of)]
IfMatch = Annotated[
    str, Header(alias="If-Match", description="`etag` of the text that the client read.")
]


@router.get("/definitions", operation_id="listDefinitions")
def list_definitions(desk: AtDesk, kind: DefinitionKind | None = None) -> tuple[DefinitionRow, ...]:
    """Plans and definitions of one kind, or of all, by kind and name; the user's own folder comes first."""
    rows = [
        desk.definitions.row(one)
        for one in desk.definitions.all().values()
        if kind in (None, one.kind)
    ]
    return tuple(sorted(rows, key=lambda one: (one.origin != "own", one.kind, one.name)))


@router.get("/definitions/starters", operation_id="listStarters")
def list_starters(kind: DefinitionKind | None = None) -> tuple[Starter, ...]:
    """Texts from which a user starts a new plan or definition."""
    return tuple(one for one in STARTERS if kind in (None, one.kind))


@router.get("/definitions/choices", operation_id="listChoices")
def list_choices(desk: AtDesk) -> tuple[Choice, ...]:
    """ML tasks, models, datasets and prompts that a plan can name, with GPU memory, sizes and samples."""
    kept = {one.id: one.updated for one in desk.definitions.all().values()}
    return desk.choices.of(
        "choices", tuple(kept.items()), lambda: choices_in(desk.definitions.plans)
    )


@router.post("/definitions/check", operation_id="checkDefinition")
def check_definition(asked: CheckAsked, desk: AtDesk) -> Checked:
    """Check a text without writing it."""
    definitions = desk.definitions
    as_bytes(asked.text)
    if asked.id is not None:
        file = definitions.find(asked.id)
    else:
        parts = definitions.place(asked.kind, asked.name or "unnamed")
        file = File(asked.kind, asked.name or "unnamed", definitions.plans, parts, "own", 0.0)
    found = desk.checker.ask(_request(file, asked.text) | {"estimate": asked.estimate})
    return _checked(definitions, file, found)


@router.get("/definitions/{id}", operation_id="getDefinition")
def get_definition(id: str, desk: AtDesk, response: Response) -> Definition:
    """The text of a plan or definition."""
    return _definition(desk.definitions, desk.definitions.find(id), response)


@router.post("/definitions", status_code=201, operation_id="createDefinition")
def create_definition(
    new: NewDefinition, desk: AtDesk, request: Request, response: Response
) -> Definition:
    """Create a plan or definition in the user's own folder; 409: the name exists."""
    request.scope[DONE] = f"create {new.kind} {new.name[:200]}"
    _refuse_unreadable(desk, desk.definitions.place(new.kind, new.name), new.text)
    file = desk.definitions.create(new.kind, new.name, new.text)
    return _definition(desk.definitions, file, response)


@router.put("/definitions/{id}", operation_id="writeDefinition")
def write_definition(
    id: str,
    text: DefinitionText,
    desk: AtDesk,
    request: Request,
    response: Response,
    if_match: IfMatch,
) -> Definition:
    """Replace the text of a plan or definition; 412: the file has changed since the client read it."""
    file = desk.definitions.find(id)
    request.scope[DONE] = f"write {file.kind} {file.name}"
    _refuse_unreadable(desk, file.parts, text.text)
    desk.definitions.write(file, text.text, if_match)
    return _definition(desk.definitions, file, response)


@router.delete("/definitions/{id}", status_code=204, operation_id="deleteDefinition")
def delete_definition(id: str, desk: AtDesk, request: Request, if_match: IfMatch) -> None:
    """Delete a plan or definition; 412: the file has changed since the client read it."""
    file = desk.definitions.find(id)
    request.scope[DONE] = f"delete {file.kind} {file.name}"
    desk.definitions.delete(file, if_match)


@router.get("/schemas/{kind}", operation_id="getSchema")
def get_schema(kind: DefinitionKind, response: Response) -> Mapping[str, Any]:
    """JSON Schema of a kind of definition, for editors."""
    schema = json_schema("experiments" if kind == "plans" else kind)
    response.headers["ETag"] = tag(json.dumps(schema).encode())
    return schema


@router.post("/submissions", status_code=202, operation_id="submitPlan")
def submit_plan(asked: SubmissionAsked, desk: AtDesk, portal: Here, request: Request) -> Submitted:
    """Submit a plan; `/submissions/{id}` has the output of the command."""
    refuse_commands(portal)
    file = desk.definitions.find(asked.definition)
    identity = desk.commands.begin(file, asked.etag)
    request.scope[DONE] = f"submit {file.name} ({identity})"
    return desk.commands.look(identity)


@router.post("/submissions/actions", status_code=202, operation_id="actOnExperiment")
def act_on_experiment(
    asked: ActionAsked, desk: AtDesk, portal: Here, request: Request
) -> Submitted:
    """Pause, resume, cancel or score an experiment; `/submissions/{id}` has the output of the command."""
    refuse_commands(portal)
    identity = desk.commands.act(experiment_of(portal, asked.experiment), asked.action)
    request.scope[DONE] = f"{asked.action} {asked.experiment} ({identity})"
    return desk.commands.look(identity)


@router.get("/submissions/{id}", operation_id="getSubmission")
def get_submission(id: str, desk: AtDesk) -> Submitted:
    """State of a command that the portal runs."""
    return desk.commands.look(id)


def refuse_commands(portal: Portal) -> None:
    """Refuse to run a command where the user's options do not allow it.

    Raises:
        PortalFault: the command is refused.
    """
    if not portal.options.may_submit:
        raise refused("this portal may not run commands", "start the portal with --allow-submit")


# --- answers ------------------------------------------------------------------------------------------------


def _definition(definitions: Definitions, file: File, response: Response) -> Definition:
    text, etag = definitions.read(file)
    response.headers["ETag"] = etag
    return Definition(row=definitions.row(file), text=text, etag=etag)


def _request(file: File, text: str) -> dict[str, Any]:
    return {"kind": file.folder_kind, "path": str(file.path), "text": text}


def _refuse_unreadable(desk: Desk, parts: tuple[str, ...], text: str) -> None:
    """Refuse a text that is no YAML, or YAML without an end; drafts stay in the browser.

    Raises:
        PortalFault: the text is refused.
    """
    if not desk.definitions.may_edit:
        return  # the write itself refuses, with a better message
    as_bytes(text)
    if not text.strip():
        return
    found = desk.checker.ask({"path": "/".join(parts), "kind": "", "text": text, "only_read": True})
    if found["problems"]:
        first = found["problems"][0]
        place = f"line {first['line']}, column {first['column']}: " if first["line"] else ""
        what = f"this is not valid YAML: {place}{first['message']}"
        raise PortalFault(
            422, "not_yaml", what, "correct it, then save; the browser keeps your draft"
        )


def _checked(definitions: Definitions, file: File, found: Mapping[str, Any]) -> Checked:
    estimate = found.get("estimate")
    samples: Mapping[str, int] = (estimate or {}).get("by_run_task", {})
    problems = [_note(definitions, file, one, "error") for one in found["problems"]]
    problems += [_note(definitions, file, one, "warning") for one in found["warnings"]]
    known = {**estimate} if estimate else None
    if known is not None:
        del known["by_run_task"]
        known["lines"] = [secret.mask(line) for line in known["lines"]]
    return Checked(
        problems=tuple(sorted(problems, key=lambda one: (one.file, one.line, one.column))),
        run_tasks=tuple(
            Expanded.model_validate({**one, "samples": samples.get(one["name"])})
            for one in found["run_tasks"]
        ),
        run_tasks_total=found["total"],
        estimate=Estimate.model_validate(known) if known else None,
        estimate_fault=found.get("estimate_fault", ""),
        commands=_commands(file),
    )


def _note(definitions: Definitions, file: File, problem: Mapping[str, Any], severity: str) -> Note:
    place, other = Path(problem["file"] or file.path), None
    path = place if place.is_absolute() else definitions.plans / place
    called = ""
    if path != file.path:
        other = definitions.at(path)
        called = f"{other.kind}/{other.name}" if other else str(place)
    return Note.model_validate(
        {
            "line": problem["line"] or 1,
            "column": problem["column"] or 1,
            "severity": severity,
            "message": secret.mask(problem["message"]),
            "remedy": secret.mask(problem["remedy"] or ""),
            "file": called,
            "definition": other.id if other else None,
        }
    )


def _commands(file: File) -> tuple[CommandLine, ...]:
    if file.kind != "plans" or file.origin != "own":
        return ()
    return commands_of(file.root, file.parts)


def commands_of(root: Path, parts: Sequence[str]) -> tuple[CommandLine, ...]:
    """Shell commands for a plan.

    Args:
        root: folder of the plan and its registries.
        parts: parts of the path from `root` to the plan.
    """
    name = "/".join(parts)
    plan = shlex.quote(f"./{name}" if name.startswith("-") else name)
    there = f"cd {shlex.quote(str(root))} && hpcbench"
    return (
        CommandLine(title="Check the plan", text=f"{there} validate {plan}"),
        CommandLine(title="Estimate its resources", text=f"{there} submit {plan} --estimate"),
        CommandLine(title="Show its jobs, submit nothing", text=f"{there} submit {plan} --dry-run"),
        CommandLine(title="Submit the plan", text=f"{there} submit {plan}"),
    )
