"""After the report: trackers and notifiers are told, and one that fails costs the experiment nothing."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.reporting.telling import tell
from hpcbench.schema.documents import ExperimentPlan
from hpcbench.testing import TABLES
from tests.unit.small import experiment, record


@pytest.fixture
def posted() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A real HTTP server on loopback and what it was sent."""
    found: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if "broken" in self.path else 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", found
    server.shutdown()
    server.server_close()


def told(folder: Path, state: str = "done", **plan: Any) -> list[str]:
    here = experiment(folder, [record(1)])
    resolved = here.resolved
    changed = ExperimentPlan.model_validate({**resolved.plan.model_dump(mode="json"), **plan})
    here.resolved_file.write_text(resolved.model_copy(update={"plan": changed}).model_dump_json())
    del here.__dict__["resolved"]
    return tell(here, state, TABLES)


def test_a_webhook_gets_the_event_or_the_text(
    tmp_path: Path, posted: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    monkeypatch.setenv("HOOK", url)
    options = {"url": "${env:HOOK}/secret-part"}
    hooks = [
        {"plugin": "webhook", "options": options},
        {"plugin": "webhook", "options": {**options, "form": "text"}},
        {"plugin": "webhook", "options": options, "when": ["incomplete"]},
    ]
    assert told(tmp_path, notifications=hooks) == []
    assert [set(one) for one in found] == [
        {"experiment", "state", "report", "summary", "time"},
        {"text"},
    ]
    assert found[0]["state"] == "done"
    assert found[1]["text"].endswith("is done: vqa anls 0.500")


def test_a_command_gets_the_event_on_its_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    command = {"plugin": "command", "options": {"argv": [sys.executable, "-c", code]}}
    assert told(tmp_path, "incomplete", notifications=[command]) == []
    assert json.loads(out.read_text())["state"] == "incomplete"


def test_a_tracker_appends_a_line_a_metric(tmp_path: Path) -> None:
    tracker = {"plugin": "jsonl", "options": {"path": str(tmp_path / "deep/h.jsonl")}}
    assert told(tmp_path, trackers=[tracker, tracker]) == []
    lines = [json.loads(line) for line in (tmp_path / "deep/h.jsonl").read_text().splitlines()]
    assert [(line["metric"], line["value"]) for line in lines] == [
        ("anls", 0.5),
        ("=1+1", None),
    ] * 2


def test_what_fails_is_told_without_secrets_and_the_rest_goes_on(
    tmp_path: Path, posted: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    monkeypatch.setenv("HOOK_PART", "broken-and-secret")
    monkeypatch.setenv("NO_URL", "ftp://broken-and-secret")
    hooks = [
        {"plugin": "webhook", "options": {"url": f"{url}/${{env:HOOK_PART}}"}},
        {"plugin": "webhook", "options": {"url": "${env:NO_URL}"}},
        {"plugin": "webhook", "options": {"url": "${env:NOT_SET_AT_ALL}"}},
        {"plugin": "command", "options": {"argv": ["/no/such/program"]}},
        {"plugin": "command", "options": {"argv": ["/bin/false"]}},
        {"plugin": "webhook", "options": {"url": url}},
    ]
    failed = told(tmp_path, notifications=hooks)
    assert [one.partition(": ")[0] for one in failed] == ["notifiers webhook"] * 3 + [
        "notifiers command"
    ] * 2
    assert "broken-and-secret" not in "".join(failed)
    assert len(found) == 2
