"""A notifier that runs a program of the user."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.notify import Refused
from hpcbench.notify.messages import one_line

PATIENCE = 25.0
"""Longest time that a program may take, seconds; a sender has 30 in total, see `sending.py`."""


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
        try:
            done = subprocess.run(
                list(self.argv), input=json.dumps(event, ensure_ascii=False), text=True,
                capture_output=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:  # its own text shows the arguments
            raise Refused(f"the command took longer than {PATIENCE:g} s") from None
        if done.returncode != 0:
            last = one_line(done.stderr)[-200:]
            raise Refused(f"exit code {done.returncode}: {last}")
