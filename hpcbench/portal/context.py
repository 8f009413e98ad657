"""Shared context of all routes: home, index, live messages, the user's options."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request

from hpcbench.experiment.layout import Experiment, experiments_dir
from hpcbench.portal.faults import missing

if TYPE_CHECKING:
    from hpcbench.portal.broadcast import Hub
    from hpcbench.portal.index.sql_index import Index
    from hpcbench.schema.outputs import Database

PartT = TypeVar("PartT")

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


@dataclass(frozen=True)
class Options:
    """Options with which the user started the portal."""

    plans: Path
    """Folder of the user's plans and registries."""
    may_edit: bool = False
    """Whether plans and definitions may be written."""
    may_submit: bool = False
    """Whether plans may be submitted."""
    root_path: str = ""
    """Path prefix under which a proxy serves it, without a slash at the end."""
    umask: int = field(default_factory=_umask)
    """The user's own, before the portal takes a stricter one: of plans it writes, and what `submit` makes."""


@dataclass
class Portal:
    """One running portal."""

    home: Path
    """Folder of experiments and caches."""
    options: Options
    """The user's options."""
    index: Index
    """Facts on experiments that need no open experiment."""
    hub: Hub
    """Live messages."""
    tunnel: str = ""
    """The `ssh -L` line."""
    database: Database | None = None
    """Database of results, as the site profile names it."""
    used: float = field(default_factory=time.monotonic)
    """Time of the last request, by the monotonic clock; streams and renewals do not count."""
    kept: dict[Callable[..., Any], Any] = field(default_factory=dict)
    """Objects that the routes keep between requests, by the functions that make them."""


def once(make: Callable[[Portal], PartT]) -> Callable[[Portal], PartT]:
    """Decorate a function that makes a part of a portal: the part is made at its first use, and kept."""

    @functools.wraps(make)
    def part(portal: Portal) -> PartT:
        if part not in portal.kept:
            portal.kept.setdefault(part, make(portal))
        found: PartT = portal.kept[part]
        return found

    return part


def is_id(text: str) -> bool:
    """Whether the text is a valid id of an experiment."""
    return _ID.fullmatch(text) is not None


async def portal_of(request: Request) -> Portal:
    """The portal of a request; a coroutine, as FastAPI gives each plain function a turn of a thread."""
    portal = request.app.state.portal
    assert isinstance(portal, Portal)
    return portal


Here = Annotated[Portal, Depends(portal_of)]
"""The running portal, as an argument of a route."""


def is_here(folder: Path, identity: str) -> bool:
    """Whether a folder of experiments has one with this id."""
    path = folder / identity
    return is_id(identity) and not path.is_symlink() and (path / "manifest.json").is_file()


def experiment_of(portal: Portal, identity: str) -> Experiment:
    """The experiment with an id; ids are names below the home, never paths.

    Raises:
        PortalFault: no experiment has the id.
    """
    folder = experiments_dir(portal.home)
    if is_here(folder, identity):
        return Experiment(folder / identity)
    raise missing(f"no experiment '{identity[:200]}'")
