"""The example of an agent: the tiny model answers about small print with `crop`, and cannot without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.demo.reader import hpcbench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PLAN = "examples/agent/plan.yaml"


def test_the_tiny_model_needs_the_tool_to_read_small_print(tmp_path: Path) -> None:
    hpcbench(tmp_path, "submit", PLAN, "--limit", "20", "--wait")

    tables = json.loads(hpcbench(tmp_path, "report", "--json"))["run_tasks"]
    found = {name: table["metrics"]["exact_match"]["value"] for name, table in tables.items()}
    assert found["with-crop"] >= 0.8
    assert found["without-tools"] <= 0.2
