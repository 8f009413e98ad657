"""A notifier that runs a program of the user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.notify import Refused
from hpcbench.notify.messages import one_line
from hpcbench.subprocesses import run

PATIENCE = 25.0
"""Longest time that a program may take, seconds; a sender has 30 in total, see `deliver.py`."""


class CommandNotifier:
    """Runs a program of the user with the event as JSON on its standard input."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the command notifier."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        argv: tuple[str, ...] = Field(min_length=1)
        """Program and arguments; no shell reads them."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.argv = self.Options.model_validate(dict(options)).argv

    def send(self, event: Mapping[str, Any]) -> None:
        """Run it.

        Raises:
            Refused: it ended with an exit code other than 0, or took too long.
            OSError: there is no such program.
        """
        ended = run(self.argv, PATIENCE, given=json.dumps(event, ensure_ascii=False))
        if ended.late:
            raise Refused(f"the command took longer than {PATIENCE:g} s")
        if ended.failed:
            raise Refused(f"exit code {ended.code}: {one_line(ended.messages)[-200:]}")
