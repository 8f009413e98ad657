"""The plugin of the engine that goes wrong: `wayward_process` is its process, and says how."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from hpcbench.plugins import API, Command, EngineSpec

FIELDS = {"skip_special_tokens": False, "temperature": 0.5}


class WaywardEngine:
    """All that an engine class may have."""

    api: ClassVar[int] = API
    packages: ClassVar[tuple[str, ...]] = ("aiohttp",)
    checks_media: ClassVar[bool] = False

    def launch_command(self, spec: EngineSpec) -> Command:
        reported = {**spec.options, "cpus": spec.cpus, "images": spec.images, "reuse": spec.reuse}
        argv = [
            sys.executable,
            "-m",
            "tests.unit.wrapper.wayward_process",
            spec.socket,
            json.dumps(reported),
        ]
        return Command(argv)

    def request_fields(self, spec: EngineSpec) -> Mapping[str, Any]:
        return FIELDS
