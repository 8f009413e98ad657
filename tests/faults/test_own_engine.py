"""A user's own engine, in a folder beside the plan, that she changes between two runs."""

from __future__ import annotations

import shutil

import pytest

from tests.faults.conftest import ENGINE, Bench

pytestmark = pytest.mark.engine


def test_a_changed_engine_answers_with_its_present_code(bench: Bench) -> None:
    mine = bench.folder / "mine"
    shutil.copytree(ENGINE, mine)
    bench.write("registry/packages/scripted.yaml", {
        "name": "scripted", "provides": {"engines": ["scripted"], "tools": ["pay"]},
        "source": {"type": "local", "path": str(mine)},
    })  # fmt: skip
    plan = bench.plan({"limit": 4})
    first = bench.submit(plan)
    first.wait("done")

    module = mine / "hpcbench_scripted.py"
    module.write_text(module.read_text().replace("hexdigest()[:10]", "hexdigest()[:3]"))
    second = bench.submit(plan)
    second.wait("done")

    kept = {name: answer[: len("ok ") + 3] for name, answer in first.answers().items()}
    assert second.answers() == kept and kept != first.answers()
