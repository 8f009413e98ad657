"""A model that a job of Slurm serves: submitted, asked, seen in the queue, ended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.help_examples import example
from tests.user import User, until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


def _ready(user: User) -> dict[str, Any] | None:
    for path in (user.home / "serving").glob("*.json"):
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return None


def test_a_job_of_slurm_serves_a_model_until_it_is_stopped(slurm_user: User) -> None:
    user = slurm_user
    words = example("serve tiny-vlm --job --time-limit 00:30:00")
    said = user.ok(*words, "--registry", user.registry)
    assert "of Slurm serves tiny-vlm for 30 min" in said
    [record] = (user.home / "serving").glob("*/job.json")
    job = json.loads(record.read_text())
    assert any(one.id == job["job"] for one in user.lab.squeue())
    until(lambda: _ready(user) is not None, 300, "the model", every=0.5)
    served = _ready(user)
    assert served is not None
    assert served["id"] == job["id"]
    assert served["address"].startswith("http://")
    key = (user.home / "serving" / f"{job['id']}.key").read_text()
    body = {
        "model": "tiny-vlm",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 4,
    }
    asked = subprocess.run(
        ["curl", "-sS", "-H", f"X-API-Key: {key}", "-H", "Content-Type: application/json",
         f"{served['address']}/v1/chat/completions", "-d", json.dumps(body)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(asked.stdout)["usage"]["completion_tokens"] > 0
    assert "ended" in user.hpcbench(*example("serve tiny-vlm --stop")).stderr
    until(lambda: all(one.id != job["job"] for one in user.lab.squeue()), 120, "the job's end")
    left: list[Path] = list((user.home / "serving").iterdir())
    assert left == []
