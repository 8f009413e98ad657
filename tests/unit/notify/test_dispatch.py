"""Trackers and notifiers get their report after the end, once; a failure costs the experiment nothing."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.due import tell_of_newest, tell_what_is_owed
from hpcbench.cli.main import main
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import create_exclusive, read_lines, write_json
from hpcbench.notify import deliver, dispatch, outbox
from hpcbench.notify.dispatch import catch_up, tell, tell_verdict
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.testing import TABLES, VERDICT
from tests.help_examples import example
from tests.unit.command import Cli
from tests.unit.dying import Dying
from tests.unit.small import experiment, record

Posted = tuple[str, list[dict[str, Any]]]


@pytest.fixture
def posted() -> Iterator[Posted]:
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
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", found
    server.shutdown()
    server.server_close()


def ended(folder: Path, state: str = "done", **plan: Any) -> Experiment:
    """An experiment that has ended, with this in its plan."""
    here = experiment(folder, [record(1)])
    resolved = here.resolved
    changed = ExperimentPlan.model_validate({**resolved.plan.model_dump(mode="json"), **plan})
    here.resolved_file.write_text(resolved.model_copy(update={"plan": changed}).model_dump_json())
    word = {"version": 1, "round": 0, "state": state, "shards_left": [], "notify": True}
    write_json(here.outcome_file, word)
    return Experiment(here.path)


def reported(folder: Path, state: str = "done", **plan: Any) -> list[str]:
    return tell(ended(folder, state, **plan), state, TABLES)


@pytest.mark.long
def test_a_webhook_gets_the_event_or_the_text(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    monkeypatch.setenv("HOOK", url)
    options = {"url": "${env:HOOK}/secret-part"}
    hooks = [
        {"plugin": "webhook", "options": options},
        {"plugin": "webhook", "options": {**options, "form": "text"}},
        {"plugin": "webhook", "options": options, "when": ["incomplete"]},
    ]
    assert reported(tmp_path, notifications=hooks) == []
    text, event = sorted(found, key=len)  # sent at once, in any order
    assert set(text) == {"text"} and text["text"].endswith("is done: vqa anls 0.500")
    assert set(event) == {"id", "experiment", "plan", "state", "report", "summary", "time"}
    assert event["state"] == "done"


@pytest.mark.long
def test_a_command_gets_the_event_on_its_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    command = {"plugin": "command", "options": {"argv": [sys.executable, "-c", code]}}
    assert reported(tmp_path, "incomplete", notifications=[command]) == []
    assert json.loads(out.read_text())["state"] == "incomplete"


def test_a_tracker_appends_a_line_a_metric(tmp_path: Path) -> None:
    tracker = {"plugin": "jsonl", "options": {"path": str(tmp_path / "deep/h.jsonl")}}
    assert reported(tmp_path, trackers=[tracker, tracker]) == []
    lines = [json.loads(line) for line in (tmp_path / "deep/h.jsonl").read_text().splitlines()]
    assert [(line["metric"], line["value"]) for line in lines] == [
        ("anls", 0.5),
        ("=1+1", None),
    ] * 2


@pytest.mark.long
def test_what_fails_is_reported_without_secrets_and_the_rest_goes_on(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    monkeypatch.setattr(dispatch, "PAUSES", ())
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
    failed = reported(tmp_path, notifications=hooks)
    assert [one.partition(": ")[0] for one in failed] == ["notifiers webhook"] * 3 + [
        "notifiers command"
    ] * 2
    assert "broken-and-secret" not in "".join(failed)
    assert (
        "broken-and-secret"
        not in Experiment(next(tmp_path.glob("experiments/*"))).told_file.read_text()
    )
    assert [one["state"] for one in found if "broken" not in one["summary"]][-1] == "done"


# --- once, and again where it failed -------------------------------------------------------------------


def hook(url: str, **more: Any) -> dict[str, Any]:
    return {"plugin": "webhook", "options": {"url": url}, **more}


def states(here: Experiment) -> list[tuple[str, int]]:
    return [(one.state, one.tries) for one in outbox.deliveries(here)]


def at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """So many seconds later."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


@pytest.mark.long
def test_each_gets_one_report_however_often_it_is_called(tmp_path: Path, posted: Posted) -> None:
    url, found = posted
    here = ended(tmp_path, notifications=[hook(url), hook(f"{url}/b")])
    assert tell(here, "done", TABLES) == tell(here, "done", TABLES) == catch_up(here) == []
    assert main(example("notify @last", {"@last": here.path})) == 0
    assert len(found) == 2
    assert states(here) == [("told", 1), ("told", 1)]


@pytest.mark.long
def test_another_end_is_reported_again_and_one_that_no_user_wants_is_not(
    tmp_path: Path, posted: Posted
) -> None:
    url, found = posted
    here = ended(tmp_path, "incomplete", notifications=[hook(url, when=["incomplete"])])
    tell(here, "incomplete", TABLES)
    tell(here, "incomplete", TABLES)
    write_json(here.outcome_file, {"version": 1, "round": 1, "state": "incomplete"})
    tell(here, "incomplete", TABLES)
    tell(here, "done", TABLES)
    tell(here, "cancelled", TABLES)
    assert [one["id"].partition(".")[2] for one in found] == [
        "end-0-incomplete",
        "end-1-incomplete",
    ]


@pytest.mark.long
def test_what_a_node_could_not_send_the_login_node_sends(
    tmp_path: Path,
    posted: Posted,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, found = posted
    monkeypatch.setattr(dispatch, "PAUSES", ())
    target = tmp_path / "where"
    target.write_text(f"{url}/broken")  # no way out of the node
    here = ended(tmp_path, notifications=[hook(f"${{file:{target}}}"), hook(url)])
    (failed,) = tell(here, "done", TABLES)
    assert "HTTP 500" in failed
    before = len(found)
    target.write_text(url)
    assert catch_up(here) == [] and len(found) == before  # not at once: a reader need not wait
    at(monkeypatch, 61)
    tell_of_newest(tmp_path)
    assert capsys.readouterr().err == ""
    assert len(found) == before + 1
    assert [state for state, _ in states(here)] == ["told", "told"]
    tell_of_newest(tmp_path)
    assert len(found) == before + 1


@pytest.mark.long
def test_a_process_killed_before_its_report_leaves_it_to_the_next_look(
    tmp_path: Path, posted: Posted
) -> None:
    url, found = posted
    here = ended(tmp_path, notifications=[hook(url)])
    tell_what_is_owed(here)
    tell_what_is_owed(here)
    assert [one["state"] for one in found] == ["done"]


def test_ends_of_long_ago_and_of_older_versions_are_no_news(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    here = ended(tmp_path, notifications=[hook(url)])
    write_json(here.outcome_file, {"version": 1, "round": 0, "state": "done"})
    tell_what_is_owed(here)
    write_json(here.outcome_file, {"version": 1, "round": 0, "state": "done", "notify": True})
    at(monkeypatch, outbox.KEPT + 60)
    tell_what_is_owed(here)
    assert found == []


@pytest.mark.long
def test_it_is_given_up_in_the_end_and_asked_for_it_is_tried_again(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    url, found = posted
    monkeypatch.setattr(dispatch, "PAUSES", ())
    lines: list[dict[str, Any]] = []
    here = ended(tmp_path, notifications=[hook(f"{url}/broken")])

    def refuse(job: dict[str, Any]) -> dict[str, Any]:
        lines.append(job["event"])
        return {"why": "no", "after": None, "remark": None}

    monkeypatch.setattr(dispatch, "send_apart", refuse)
    for hours in range(0, 100, 2):
        with monkeypatch.context() as later:
            at(later, hours * 3600 + 1)
            catch_up(here)
    assert len(lines) == outbox.MOST
    monkeypatch.undo()
    reported = cli.both("notify", here.path, code=3)
    assert "FAILED  notifications.0 webhook  done, 9 tries: Busy: HTTP 500" in reported.out
    assert "1 of 1 notifications were not sent" in reported.err


@pytest.mark.long
def test_a_secret_that_is_not_here_costs_no_try(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    here = ended(tmp_path, notifications=[hook("${env:HOOK_OF_TEST}")])
    (said,) = tell(here, "done", TABLES)
    assert "${env:HOOK_OF_TEST}: the variable is not set" in said
    assert states(here) == [("owed", 0)]
    monkeypatch.setenv("HOOK_OF_TEST", url)
    assert catch_up(here) == []
    assert len(found) == 1


def test_a_notifier_that_hangs_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    out = tmp_path / "pid"
    code = f"import os, time; open({str(out)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    options = {"argv": [sys.executable, "-c", code]}
    job = {"packages": None, "plugin": "command", "options": options, "event": {}, "pauses": []}
    limit = 1.0
    while not out.exists() or not out.read_text():  # a slow machine may not come so far in time
        said = deliver.send_apart(job, limit)
        assert "hpcbench stopped it" in said["why"]
        limit *= 2
    pid = int(out.read_text())
    while Path(f"/proc/{pid}").exists():
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break
        time.sleep(0.01)


@pytest.mark.long
def test_a_notifier_that_exits_or_prints_is_a_failure_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.py").write_text(
        "import os\n"
        "class Exits:\n"
        "    api = 1\n"
        "    def __init__(self, options): pass\n"
        "    def send(self, event): os._exit(7)\n"
        "class Prints(Exits):\n"
        "    def send(self, event): print('noise'); os.write(1, b'more noise\\n')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    here = ended(tmp_path, notifications=[{"plugin": "odd:Exits"}, {"plugin": "odd:Prints"}])
    (failed,) = tell(here, "done", TABLES)
    assert failed == "notifiers odd:Exits: it ended with 7: it printed no message"


def test_a_look_by_a_user_who_may_not_write_reports_nothing(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    here = ended(tmp_path, notifications=[hook(url)])

    def refused(*_: Any) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hpcbench.files.lease.create_exclusive", refused)
    assert catch_up(here) == []
    assert found == []


@pytest.mark.long
def test_of_two_at_once_one_tells(tmp_path: Path, posted: Posted) -> None:
    url, found = posted
    here = ended(tmp_path, notifications=[hook(url)])
    threads = [threading.Thread(target=tell, args=(here, "done", TABLES)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


@pytest.mark.long
def test_the_lock_of_a_process_that_is_gone_is_no_obstacle(tmp_path: Path, posted: Posted) -> None:
    import socket

    url, found = posted
    here = ended(tmp_path, notifications=[hook(url)])
    dead = {"host": socket.gethostname(), "pid": 2**22 + 1, "token": "x", "time": 0}
    assert create_exclusive(here.told_file.with_suffix(".lock"), dead)
    assert catch_up(here) == []
    assert len(found) == 1


@pytest.mark.long
def test_killed_at_any_step_it_is_reported_in_the_end_and_at_most_once_more_with_a_word_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []

    def send(job: dict[str, Any]) -> dict[str, Any]:
        sent.append(job["event"])
        return {"why": None, "after": None, "remark": None}

    monkeypatch.setattr(dispatch, "send_apart", send)
    monkeypatch.setattr("hpcbench.files.lease.beating", _silent)
    steps = Dying()
    with steps():
        tell(ended(tmp_path / "whole", notifications=[hook("http://x")]), "done", TABLES)
    assert len(sent) == 1
    for step in range(len(steps.calls)):
        sent.clear()
        here = ended(tmp_path / str(step), notifications=[hook("http://x")])
        with Dying(step)():
            tell(here, "done", TABLES)
        here.told_file.with_suffix(".lock").unlink(missing_ok=True)  # as its process is gone
        with monkeypatch.context() as later:
            at(later, 3700)
            tell(here, "done", TABLES)
            tell(here, "done", TABLES)
        assert 1 <= len(sent) <= 2, step
        assert [state for state, _ in states(here)] == ["told"], step
        for again in sent[1:]:
            assert again["summary"].endswith("(this message may be a repetition)")
            assert again["id"] == sent[0]["id"]


def _silent(lock: Path) -> Any:
    import contextlib

    return contextlib.nullcontext()


# --- verdicts ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_verdict_is_reported_once_unless_it_is_go(tmp_path: Path, posted: Posted) -> None:
    url, found = posted
    here = ended(tmp_path, notifications=[hook(url, when=["regression"]), hook(url, when=["done"])])
    assert tell_verdict(here, {**VERDICT, "verdict": "GO"}) == []
    assert tell_verdict(here, VERDICT) == tell_verdict(here, {**VERDICT, "time": "later"}) == []
    assert [one["state"] for one in found] == ["regression"]
    assert found[0]["verdict"] == VERDICT
    assert "NO-GO" in found[0]["summary"] and "worse by more than the margin" in found[0]["summary"]
    tell_verdict(here, {**VERDICT, "baseline": "another"})
    assert len(found) == 2


def test_a_verdict_that_cannot_be_written_down_harms_no_other(tmp_path: Path) -> None:
    here = ended(tmp_path, notifications=[hook("http://127.0.0.1:1")])
    (failed,) = tell_verdict(here, {**VERDICT, "checks": [{"baseline": float("nan")}]})
    assert failed.startswith("notifiers: ValueError")


# --- the verb ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_test_goes_to_all_of_a_plan_and_says_what_happened(
    tmp_path: Path, posted: Posted, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    here = ended(tmp_path, notifications=[hook(url, when=["regression"]), hook(f"{url}/broken")])
    shown = cli.json(*example("notify PLAN --test", {"PLAN": here.path}), "--json", code=3)
    assert [(one["plugin"], one["state"], one["what"]) for one in shown] == [
        ("webhook", "told", "test"), ("webhook", "failed", "test"),
    ]  # fmt: skip
    assert found[0]["state"] == "test"
    assert not here.told_file.exists()


def test_what_makes_no_sense_is_said_in_a_line(tmp_path: Path, cli: Cli) -> None:
    here = ended(tmp_path)
    assert "has no notifications" in cli.err("notify", here.path)
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: x\n")
    assert "--test sends test notifications" in cli.err("notify", plan)


@pytest.mark.long
def test_the_file_holds_no_secret_and_survives_lines_of_later_versions(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, found = posted
    monkeypatch.setenv("HOOK_OF_TEST", f"{url}/very-secret-token")
    here = ended(tmp_path, notifications=[hook("${env:HOOK_OF_TEST}")])
    with here.told_file.open("w") as file:
        file.write('{"event":"invented","id":1}\n{"event":"told","id":"?","notification":9}\n')
    assert tell(here, "done", TABLES) == []
    assert len(found) == 1
    assert "very-secret" not in here.told_file.read_text()
    kinds = [line["event"] for line in read_lines(here.told_file)][2:]
    assert kinds == ["owed", "sending", "told"]
