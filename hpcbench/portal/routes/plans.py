"""Routes of plans and the documents around them: read, checked, written, submitted."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response

from hpcbench import secret
from hpcbench.portal.context import Here, Portal
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.plans import (
    CheckAsked,
    Checked,
    Document,
    DocumentKind,
    DocumentRow,
    DocumentText,
    Estimate,
    Expanded,
    NewDocument,
    Note,
    Starter,
    SubmissionAsked,
    Submitted,
)
from hpcbench.portal.models.run_tasks import CommandLine
from hpcbench.portal.plan_checks import Checker
from hpcbench.portal.plan_starters import STARTERS
from hpcbench.portal.plan_submission import Submissions
from hpcbench.portal.routes import room
from hpcbench.portal.user_documents import (
    Documents,
    File,
    as_bytes,
    tag,
)
from hpcbench.schema.describe import json_schema

router = room("plans")

DONE = "hpcbench.what"
"""Key of a request's scope: what was done, in words, for the record of changes."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What these routes keep between requests."""

    documents: Documents
    checker: Checker
    submissions: Submissions


def desk_of(portal: Here) -> Desk:
    """The desk of a portal, made with the first request."""
    found = portal.extra.get("plans")
    if not isinstance(found, Desk):
        options = portal.options
        documents = Documents(options.plans, options.may_edit, options.umask)
        submissions = Submissions(
            portal.home / "portal" / "submissions", documents, umask=options.umask
        )
        made = Desk(documents, Checker(documents.plans), submissions)
        found = portal.extra.setdefault("plans", made)
        assert isinstance(found, Desk)
    return found


AtDesk = Annotated[Desk, Depends(desk_of)]
IfMatch = Annotated[str, Header(alias="If-Match", description="`etag` of the text that was read.")]


@router.get("/documents", operation_id="listDocuments")
def list_documents(desk: AtDesk, kind: DocumentKind | None = None) -> tuple[DocumentRow, ...]:
    """Documents of a kind, or all, by kind and name; those of the user's own folder first."""
    rows = [
        desk.documents.row(one) for one in desk.documents.all().values() if kind in (None, one.kind)
    ]
    return tuple(sorted(rows, key=lambda one: (one.origin != "own", one.kind, one.name)))


@router.get("/documents/starters", operation_id="listStarters")
def list_starters(kind: DocumentKind | None = None) -> tuple[Starter, ...]:
    """Texts to begin a new document with."""
    return tuple(one for one in STARTERS if kind in (None, one.kind))


@router.post("/documents/check", operation_id="checkDocument")
def check_document(asked: CheckAsked, desk: AtDesk) -> Checked:
    """What the registry says of a text; nothing is written."""
    documents = desk.documents
    as_bytes(asked.text)
    if asked.id is not None:
        file = documents.find(asked.id)
    else:
        parts = documents.place(asked.kind, asked.name or "unnamed")
        file = File(asked.kind, asked.name or "unnamed", documents.plans, parts, "own", 0.0)
    found = desk.checker.ask(_request(file, asked.text) | {"estimate": asked.estimate})
    return _checked(documents, file, found)


@router.get("/documents/{id}", operation_id="getDocument")
def get_document(id: str, desk: AtDesk, response: Response) -> Document:
    """A document's text."""
    return _document(desk.documents, desk.documents.find(id), response)


@router.post("/documents", status_code=201, operation_id="createDocument")
def create_document(
    new: NewDocument, desk: AtDesk, request: Request, response: Response
) -> Document:
    """Make a document in the user's own folder; 409 where the name is taken."""
    request.scope[DONE] = f"create {new.kind} {new.name[:200]}"
    _refuse_unreadable(desk, desk.documents.place(new.kind, new.name), new.text)
    file = desk.documents.create(new.kind, new.name, new.text)
    return _document(desk.documents, file, response)


@router.put("/documents/{id}", operation_id="writeDocument")
def write_document(
    id: str,
    text: DocumentText,
    desk: AtDesk,
    request: Request,
    response: Response,
    if_match: IfMatch,
) -> Document:
    """Replace a document; 412 where it is not any more what the writer saw."""
    file = desk.documents.find(id)
    request.scope[DONE] = f"write {file.kind} {file.name}"
    _refuse_unreadable(desk, file.parts, text.text)
    desk.documents.write(file, text.text, if_match)
    return _document(desk.documents, file, response)


@router.delete("/documents/{id}", status_code=204, operation_id="deleteDocument")
def delete_document(id: str, desk: AtDesk, request: Request, if_match: IfMatch) -> None:
    """Remove a document; 412 where it is not any more what the user saw."""
    file = desk.documents.find(id)
    request.scope[DONE] = f"delete {file.kind} {file.name}"
    desk.documents.delete(file, if_match)


@router.get("/schemas/{kind}", operation_id="getSchema")
def get_schema(kind: DocumentKind, response: Response) -> Mapping[str, Any]:
    """JSON Schema of a kind of document, for editors."""
    schema = json_schema("experiments" if kind == "plans" else kind)
    response.headers["ETag"] = tag(json.dumps(schema).encode())
    return schema


@router.post("/submissions", status_code=202, operation_id="submitPlan")
def submit_plan(asked: SubmissionAsked, desk: AtDesk, portal: Here, request: Request) -> Submitted:
    """Submit a plan; what the command says is read under `/submissions/{id}`."""
    if not portal.options.may_submit:
        remedy = "start the portal with --allow-submit"
        raise PortalFault(403, "refused", "this portal may not submit plans", remedy)
    file = desk.documents.find(asked.document)
    identity = desk.submissions.begin(file, asked.etag)
    request.scope[DONE] = f"submit {file.name} ({identity})"
    return desk.submissions.look(identity)


@router.get("/submissions/{id}", operation_id="getSubmission")
def get_submission(id: str, desk: AtDesk) -> Submitted:
    """How far a submission is."""
    return desk.submissions.look(id)


def close(portal: Portal) -> None:
    """Let go of what waits; submissions live on."""
    found = portal.extra.get("plans")
    if isinstance(found, Desk):
        found.checker.close()


# --- in words and places ------------------------------------------------------------------------------------


def _document(documents: Documents, file: File, response: Response) -> Document:
    text, etag = documents.read(file)
    response.headers["ETag"] = etag
    return Document(row=documents.row(file), text=text, etag=etag)


def _request(file: File, text: str) -> dict[str, Any]:
    return {"kind": file.folder_kind, "path": str(file.path), "text": text}


def _refuse_unreadable(desk: Desk, parts: tuple[str, ...], text: str) -> None:
    """What is no YAML, or YAML without an end, is not written; drafts stay in the browser.

    Raises:
        PortalFault: so it is; or nothing may be written at all.
    """
    if not desk.documents.may_edit:
        return  # refused in a moment, with a better word
    as_bytes(text)
    if not text.strip():
        return
    found = desk.checker.ask({"path": "/".join(parts), "kind": "", "text": text, "only_read": True})
    if found["problems"]:
        first = found["problems"][0]
        place = f"line {first['line']}, column {first['column']}: " if first["line"] else ""
        what = f"no YAML that hpcbench reads: {place}{first['message']}"
        raise PortalFault(422, "not_yaml", what, "mend it, then save; your draft is kept")


def _checked(documents: Documents, file: File, found: Mapping[str, Any]) -> Checked:
    estimate = found.get("estimate")
    samples: Mapping[str, int] = (estimate or {}).get("by_run_task", {})
    problems = [_note(documents, file, one, "error") for one in found["problems"]]
    problems += [_note(documents, file, one, "warning") for one in found["warnings"]]
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


def _note(documents: Documents, file: File, problem: Mapping[str, Any], severity: str) -> Note:
    place, other = Path(problem["file"] or file.path), None
    path = place if place.is_absolute() else documents.plans / place
    called = ""
    if path != file.path:
        other = documents.at(path)
        called = f"{other.kind}/{other.name}" if other else str(place)
    return Note.model_validate(
        {
            "line": problem["line"] or 1,
            "column": problem["column"] or 1,
            "severity": severity,
            "message": secret.mask(problem["message"]),
            "remedy": secret.mask(problem["remedy"] or ""),
            "file": called,
            "document": other.id if other else None,
        }
    )


def _commands(file: File) -> tuple[CommandLine, ...]:
    if file.kind != "plans" or file.origin != "own":
        return ()
    return commands_of(file.root, file.parts)


def commands_of(root: Path, parts: Sequence[str]) -> tuple[CommandLine, ...]:
    """Commands for a plan, as a shell takes them.

    Args:
        root: folder of the plan's documents.
        parts: names from there to the plan.
    """
    name = "/".join(parts)
    plan = shlex.quote(f"./{name}" if name.startswith("-") else name)
    there = f"cd {shlex.quote(str(root))} && hpcbench"
    return (
        CommandLine(title="Check it", text=f"{there} validate {plan}"),
        CommandLine(title="What it would take", text=f"{there} submit {plan} --estimate"),
        CommandLine(title="Jobs it would make", text=f"{there} submit {plan} --dry-run"),
        CommandLine(title="Submit it", text=f"{there} submit {plan}"),
    )
