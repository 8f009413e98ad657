"""The page on notifications and CI, docs/ci.md, is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench import plugins
from hpcbench.cli.main import main
from hpcbench.cli.parse import parser
from hpcbench.notify.webhook import WebhookNotifier
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.outputs import Notification
from tests.conftest import ROOT

PAGE = (ROOT / "docs/ci.md").read_text()


def shown() -> dict[str, Any]:
    (block,) = re.findall(r"```yaml\n# plan.yaml\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def test_the_notifications_shown_have_options_that_their_notifiers_take() -> None:
    for entry in shown()["notifications"]:
        one = Notification.model_validate(entry)
        plugins.load("notifiers", one.plugin).Options.model_validate(dict(one.options))


def test_every_form_is_explained() -> None:
    forms = WebhookNotifier.Options.model_json_schema()["properties"]["form"]["enum"]
    reported = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert reported - {"form"} == set(forms)


def test_the_commands_shown_are_there() -> None:
    commands = re.findall(r"`hpcbench ([^`]+)`", PAGE)
    commands += re.findall(r"^hpcbench (.+)$", PAGE, re.MULTILINE)
    assert len(commands) >= 8
    for words in commands:
        if len(words.split()) > 1:
            parser().parse_args(words.split())


@pytest.mark.long
@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_the_pages_command_writes_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    line = f"hpcbench init --ci {service}"
    assert f"\n{line}\n" in PAGE
    monkeypatch.chdir(tmp_path)
    assert main(line.split()[1:]) == 0
    assert "hpcbench submit" in (tmp_path / WRITTEN[service]).read_text()


WRITTEN = {"github": ".github/workflows/hpcbench.yml", "gitlab": ".gitlab/hpcbench.yml"}


def test_a_limit_holds_for_every_run_task_that_has_no_smaller_one(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    task = {
        "ml_task": "vqa", "model": "tiny-vlm", "dataset": "demo_vqa", "prompt": "demo_vqa",
        "split": "easy", "generation": {"max_tokens": 96},
    }  # fmt: skip
    tasks = [{"name": "all", **task}, {"name": "few", **task, "limit": 3}]
    swept = {"name": "swept", **task, "load": {"concurrency": [1, 2], "requests": 4}}
    data = {"name": "x", "executor": "local", "run_tasks": [*tasks, swept]}
    plan.write_text(yaml.safe_dump(data))
    found = {one.name: one.task.limit for one in load_plan(plan, settings=["limit=5"]).run_tasks}
    assert found == {"all": 5, "few": 3, "swept-c1": 4, "swept-c2": 4}
    plan.write_text(yaml.safe_dump({**data, "limit": 2}))
    assert {one.task.limit for one in load_plan(plan).run_tasks} == {2}


@pytest.mark.parametrize("limit", ["0", "-1", "x"])
def test_a_limit_that_means_nothing_is_refused(
    limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(ROOT / "examples/demo/plan.yaml")
    try:
        code = main(["submit", plan, "--limit", limit, "--dry-run"])
    except SystemExit as end:  # argparse
        code = int(str(end.code))
    assert code == 2
    assert "limit" in capsys.readouterr().err
