"""Trackers that fail: each costs a line and bounded time, and no secret is in it."""

from __future__ import annotations

import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, RunFailed
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, read_lines, write_json
from hpcbench.notify.dispatch import tell
from hpcbench.schema.outputs import Tracker
from hpcbench.schema.records import Response, Times
from hpcbench.tracking import experiment_content
from hpcbench.tracking.feed import Sending, SentCounts, Sink
from hpcbench.tracking.jsonl import JsonlTracker
from hpcbench.tracking.phoenix import PhoenixTracker, span
from hpcbench.tracking.sent import notes_file, notes_on
from hpcbench.tracking.server_requests import Web, is_loopback
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt
from tests.unit.tracked import MANIFEST, answer, end, ended, started

KEY = "very-secret-key-of-the-tracker"


@pytest.fixture
def server() -> Iterator[Any]:
    """Starts a server that answers everything with one status; gives its address."""
    made: list[http.server.ThreadingHTTPServer] = []

    def start(status: int, headers: Mapping[str, str] = {}, tls: Path | None = None) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.dumps({"detail": f"you sent {self.headers['Authorization']}"}).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                return

        found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            found.socket = context.wrap_socket(found.socket, server_side=True)
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        made.append(found)
        return f"http{'s' if tls else ''}://127.0.0.1:{found.server_address[1]}"

    yield start
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture
def hanging() -> Iterator[str]:
    """A server that accepts and never answers; its address."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen(20)
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def closed() -> str:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{held.getsockname()[1]}"


def plan(plugin: str, **options: Any) -> list[Tracker]:
    return [Tracker(plugin=plugin, options=options)]


# --- what fails ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_dead_tracker_costs_finalise_a_line(tmp_path: Path) -> None:
    here = ended(tmp_path, 3, trackers=plan("phoenix", url=closed()))
    (line,) = tell(here, "done", {"path": str(here.path), "id": here.id})
    assert "cannot be reached" in line
    assert "\n" not in line


@pytest.mark.long
def test_a_refusal_is_reported_without_the_key(
    tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("TRACKER_KEY", KEY)
    options = {"url": server(401), "api_key": "${env:TRACKER_KEY}"}
    here = ended(tmp_path, 3, trackers=plan("phoenix", **options))
    said = cli.both("track", here.path, code=3)
    assert "answers 401" in said.err
    assert KEY not in said.err + said.out
    assert "***" in said.err
    files = [path for path in here.path.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_report_at_the_end_is_no_fault_of_the_caller(tmp_path: Path, cli: Cli) -> None:
    here = ended(
        tmp_path, 4, trackers=[Tracker(plugin="jsonl", options={"path": str(tmp_path / "x")})]
    )
    assert "jsonl takes only the end of an experiment" in cli.err("track", here.path, code=0)


@pytest.mark.long
def test_a_history_has_whole_lines_where_the_system_writes_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    tables = {
        "id": "e", "plan": {"name": "p"},
        "metrics": {"run_tasks": {"rt": {
            "model": "m", "dataset": "d", "coverage": 1.0, "metrics": {"cer": {"value": 0.5}},
        }}},
    }  # fmt: skip
    JsonlTracker({"path": str(tmp_path / "history.jsonl")}).log(tables)
    [line] = read_lines(tmp_path / "history.jsonl")
    assert (line["run_task"], line["value"]) == ("rt", 0.5)


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, hanging: str) -> None:
    here = ended(tmp_path, 3)
    with pytest.raises(EnvironmentFault, match=r"no answer in 0.2 s"):
        PhoenixTracker({"url": hanging, "timeout": 0.2}).track(here.path)


@pytest.mark.long
def test_after_a_run_no_more_time_is_taken_than_allowed(tmp_path: Path, hanging: str) -> None:
    here = ended(tmp_path, 3)
    slow = PhoenixTracker({"url": hanging, "timeout": 500, "limit": 2})
    with pytest.raises(EnvironmentFault, match="sending took longer than 2 s"):
        slow.log({"path": str(here.path)})
    for notes in here.tracked_dir.glob("*.jsonl"):  # none, where it was ended before it could write
        with notes_on(notes, patience=10):
            pass  # a process that was ended is not in the way


@pytest.mark.long
def test_an_unknown_certificate_is_not_trusted(tmp_path: Path, server: Any) -> None:
    pem = tmp_path / "server.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
    subprocess.run(
        [*made, "-keyout", str(pem), "-out", str(tmp_path / "ca.pem")],
        check=True,
        capture_output=True,
    )
    pem.write_bytes(pem.read_bytes() + (tmp_path / "ca.pem").read_bytes())
    url = server(200, tls=pem)
    with pytest.raises(EnvironmentFault, match=r"certificate .* is not trusted.*ca_file"):
        Web(url, {}).call("GET", "/", None, {})
    assert Web(url, {}, ca_file=str(tmp_path / "ca.pem")).call("GET", "/", None, {})[0] == 200


def test_no_proxy_is_used_for_this_machine(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, closed())
    assert Web(server(200), {}).call("GET", "/", None, {})[0] == 200
    assert is_loopback("localhost")
    assert is_loopback("127.8.8.8")
    assert is_loopback("::1")
    assert not is_loopback("login1")


def test_a_key_is_not_taken_to_where_a_redirect_points(server: Any) -> None:
    web = Web(server(302, {"Location": closed()}), {"Authorization": KEY})
    assert web.call("GET", "/", None, {})[0] == 302


@pytest.mark.long
def test_an_address_that_is_none_is_reported(tmp_path: Path) -> None:
    here = ended(tmp_path, 3)
    with pytest.raises(EnvironmentFault, match="'mlflow.example.org' is not an address of Phoenix"):
        PhoenixTracker({"url": "mlflow.example.org"}).track(here.path)


@pytest.mark.long
def test_a_client_that_is_not_installed_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty/wandb").mkdir(parents=True)
    (tmp_path / "empty/wandb/__init__.py").write_text("raise ImportError('no wandb here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "empty"))
    here = ended(tmp_path, 3)
    offline = plugins.load("trackers", "wandb")({"mode": "offline"})
    with pytest.raises(EnvironmentFault, match=r"not installed(.|\n)*pip install 'wandb"):
        offline.track(here.path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tracker", "mlflow"], "has no tracker 'mlflow'"),
        (["--option", "url=x"], "--option needs the name of a tracker"),
        (["--tracker", "phoenix", "--option", "url"], "KEY=VALUE"),
        (["--tracker", "phoenix", "--option", "adress=x"], "unknown option 'adress'"),
        (["--tracker", "nobody", "--option", "a=b"], "nobody"),
    ],
)
def test_words_that_cannot_be_meant(tmp_path: Path, cli: Cli, words: list[str], said: str) -> None:
    here = ended(tmp_path, 3)
    assert said in cli.err("track", here.path, *words)


@pytest.mark.long
def test_who_started_it_takes_it_along(tmp_path: Path, hanging: str) -> None:
    here = ended(tmp_path, 3)
    code = (
        "import sys; from pathlib import Path; from hpcbench.tracking.phoenix import PhoenixTracker;"
        f"PhoenixTracker({{'url': {hanging!r}, 'timeout': 500}}).track(Path({str(here.path)!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    lock = notes_file(here, "phoenix", {"url": hanging, "project": "plan"}).with_suffix(".lock")
    while not lock.exists():
        assert parent.poll() is None
        time.sleep(0.01)
    child = json.loads(lock.read_text().splitlines()[0])["pid"]
    parent.kill()
    parent.wait()
    while Path(f"/proc/{child}").exists():
        time.sleep(0.01)  # the test's own limit of time ends this


# --- notes ---------------------------------------------------------------------------------------------


def test_notes_outlive_a_torn_line_and_have_one_writer(tmp_path: Path) -> None:
    here = started(tmp_path, 3)
    path = notes_file(here, "mlflow", {"url": "http://a"})
    assert path != notes_file(here, "mlflow", {"url": "http://b"})
    with notes_on(path) as notes:
        notes.put("run", "rt", "1")
        with pytest.raises(RunFailed, match="already sends this experiment there"), notes_on(path):
            pass
    with path.open("ab") as file:
        file.write(b'{"what":"run","na')
    with notes_on(path) as notes:
        assert notes.get("run", "rt") == "1"
        notes.put("run", "rt", "2")
        notes.put("run", "rt", "2")
    assert len(path.read_text().splitlines()) == 2
    with notes_on(path) as notes:
        notes.forget()
        assert notes.get("run", "rt") is None
    with notes_on(path) as notes:
        assert notes.get("run", "rt") is None


# --- what is sent, and when it is noted ----------------------------------------------------------------


class Kept(Sink):
    """A tracker in memory, which may fail."""

    wants = frozenset({"figures", "progress", "files", "exchanges"})

    def __init__(self) -> None:
        self.got: list[tuple[Any, ...]] = []
        self.fail = ""

    def _take(self, what: str, *more: Any) -> None:
        if what == self.fail:
            raise EnvironmentFault(f"no {what}")
        self.got.append((what, *more))

    def open(self) -> None:
        self._take("open")

    def figures(self, run_task: Any, figures: Mapping[str, float], step: int) -> None:
        self._take("figures", dict(figures))

    def progress(self, run_task: Any, figures: Mapping[str, float], step: int) -> None:
        self._take("progress", step)

    def file(self, run_task: Any, name: str, path: Path) -> None:
        self._take("file", name)

    def exchanges(self, run_task: Any, found: Any) -> int:
        self._take("exchanges", [one.sample.id for one in found])
        return len(found)

    def close(self, state: str | None) -> None:
        self._take("close", state)

    def samples(self) -> list[str]:
        return [name for what, *more in self.got if what == "exchanges" for name in more[0]]


class Late(Kept):
    late = True


def send(here: Any, sink: Kept, samples: int | None = None) -> SentCounts:
    with notes_on(notes_file(here, "kept", {})) as notes:
        return Sending(here, sink, notes, samples, lambda sent: None).once()


@pytest.mark.parametrize("kind", [Kept, Late])
@pytest.mark.parametrize("fails", ["open", "figures", "file", "exchanges", "close"])
def test_wherever_it_fails_the_next_time_brings_the_rest(
    tmp_path: Path, kind: type[Kept], fails: str
) -> None:
    here = ended(tmp_path, 10)
    broken, whole = kind(), kind()
    broken.fail = fails
    with pytest.raises(EnvironmentFault):
        send(here, broken)
    sent = send(here, whole)
    known = [] if kind is Late else broken.got
    got = [*known, *whole.got]
    assert {f"s{number}" for number in range(10)} == {
        name for what, *more in got if what == "exchanges" for name in more[0]
    }
    assert len([one for one in got if one[0] == "figures"]) == 1
    files = [one[1] for one in got if one[0] == "file"]
    assert sorted(files) == sorted({*experiment_content.files_of(here), "scores/rt.parquet"})
    assert sent.state == "done"
    again = kind()
    assert send(here, again) == SentCounts(state="done")
    assert [one[0] for one in again.got] == ["open", "close"]


def test_while_it_runs_only_what_is_new_goes(tmp_path: Path) -> None:
    here, sink = started(tmp_path, 12), Kept()
    assert send(here, sink) == SentCounts()
    answer(here, 0)
    assert send(here, sink).exchanges == 4
    answer(here, 1)
    assert send(here, sink).exchanges == 4
    assert sink.samples() == [f"s{number}" for number in range(8)]
    assert [one[1] for one in sink.got if one[0] == "progress"] == [4, 8]
    answer(here, 2)
    end(here)
    sink.got.clear()
    assert send(here, sink).state == "done"
    assert sink.samples() == [f"s{number}" for number in range(12)], "again, with their scores"


def test_a_limit_takes_the_first_samples(tmp_path: Path) -> None:
    here, sink = ended(tmp_path, 10), Kept()
    assert send(here, sink, 6).exchanges == 6
    assert sink.samples() == [f"s{number}" for number in range(6)]
    assert send(here, Kept(), 0).exchanges == 0


def test_other_scores_are_sent_again_and_nothing_else(tmp_path: Path) -> None:
    here, sink = ended(tmp_path, 4), Kept()
    send(here, sink)
    found = json.loads(here.metrics_file.read_text())
    found["run_tasks"]["rt"]["metrics"]["exact_match"]["value"] = 0.125
    here.metrics_file.write_text(json.dumps(found))
    sink.got.clear()
    send(here, sink)
    assert [one[0] for one in sink.got] == ["open", "figures", "file", "close"]
    assert sink.got[1][1]["exact_match"] == 0.125


def test_attempts_on_two_nodes_follow_on_each_other(tmp_path: Path) -> None:
    day = 86_400 * 10**9

    def answered(number: int, start: int) -> Response:
        times = Times(start, start, None, (start + 10**9,), start + 2 * 10**9)
        return response(f"s{number}", times=times)

    here = started(tmp_path, 4)
    write_attempt(here, 0, 1, [answered(0, 100 * day), answered(1, 100 * day + 10**9)], "lost")
    write_attempt(here, 0, 2, [answered(2, day), answered(3, day + 10**9)])
    (piece,) = experiment_content.pieces(
        here, here.resolved.run_task("rt"), {}, limit=None, ended=True
    )
    created = datetime(2026, 1, 15, 10, tzinfo=timezone.utc)
    after = [(one.began - created).total_seconds() for one in piece.exchanges]
    assert after == [0, 1, 3, 4]


def test_a_trace_has_what_was_sent_and_the_models_reasoning(tmp_path: Path) -> None:
    settings = {"max_tokens": 5, "extra": {"top_k": 3}}
    here = experiment(tmp_path, [record(0)], generation=settings)
    write_json(here.manifest_file, {**read_json(here.manifest_file), **MANIFEST})
    here = Experiment(here.path)
    write_attempt(here, 0, 1, [response("s0", reasoning="so")])
    (piece,) = experiment_content.pieces(
        here, here.resolved.run_task("rt"), {}, limit=None, ended=True
    )
    reported = span(piece.exchanges[0], "p")["attributes"]
    assert json.loads(reported["llm.invocation_parameters"]) == {
        "max_tokens": 5, "temperature": 0.0, "top_p": 1.0, "top_k": 3,
    }  # fmt: skip
    assert json.loads(reported["metadata"])["reasoning"] == "so"


def test_figures_are_numbers_and_parameters_texts(tmp_path: Path) -> None:
    here = ended(tmp_path, 10)
    figures = experiment_content.figures_of(here)["rt"]
    assert {"exact_match", "exact_match.low", "exact_match.high", "exact_match.n"} <= set(figures)
    assert {"coverage", "ttft_ms.p50", "e2e_ms.mean"} <= set(figures)
    assert all(isinstance(value, float) for value in figures.values())
    parameters = experiment_content.parameters_of(here, here.resolved.run_tasks[0])
    assert parameters["generation.max_tokens"] == "1024"
    assert all(isinstance(value, str) and value for value in parameters.values())
