"""The scripted server of `tests.mock_openai` as an engine that the wrapper starts.

Its process imports neither this module nor the machine's certificates: tests start hundreds of them.
"""

from __future__ import annotations

import json
import sys
from typing import ClassVar

from hpcbench.plugins import API, Command, EngineSpec

# `lean` goes before aiohttp, see there.
_START = "from hpcbench.wrapper import lean; from tests.mock_openai import main; main()"


class ScriptedEngine:
    """The server as an engine plugin; options are the fields of `Script`."""

    api: ClassVar[int] = API
    packages: ClassVar[tuple[str, ...]] = ("aiohttp",)

    def launch_command(self, spec: EngineSpec) -> Command:
        argv = [sys.executable, "-c", _START, "--uds", spec.socket]
        return Command([*argv, "--script", json.dumps(dict(spec.options))])
