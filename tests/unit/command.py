"""`hpcbench`, as a test types it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpcbench.cli.main import main


class Cli:
    """Runs commands in this process. Each must end with the exit code that the test expects."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> str:
        """Standard output of a command."""
        return self.both(*words, code=code).out

    def err(self, *words: object, code: int = 2) -> str:
        """Standard error of a command that is refused, or ends with another code."""
        return self.both(*words, code=code).err

    def json(self, *words: object, code: int = 0) -> Any:
        """Standard output of a command, which is JSON."""
        return json.loads(self(*words, code=code))

    def both(self, *words: object, code: int = 0) -> Any:
        """Standard output and standard error of a command, and nothing that was printed before."""
        before = self._capsys.readouterr()
        ended = main([str(word) for word in words])
        found = self._capsys.readouterr()
        assert ended == code, f"{before.err}{found.err or found.out}"
        return found
