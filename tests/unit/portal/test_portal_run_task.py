"""The page of a run task and its neighbours: commands, provenance, report, over HTTP."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.files.atomic import Appender, read_json, write_atomic, write_json
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.commands_to_copy import commands, without_secrets
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.index import open_index
from hpcbench.portal.static_export import _enter
from tests.unit.portal.unguarded import Answer, Unguarded, unguarded
from tests.unit.reporting.many import answered, right

ENGINE = (
    "/py -m vllm.serve /nowhere/m --served-model-name org/a --api-key hf_abcdefghijklmnopqrstuv"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments of one plan; the model's variables hold a secret in plain text."""
    folder = tmp_path_factory.mktemp("home")
    for name, share in (("20261120-1432-plan-aaaa", 0.9), ("20261121-1432-plan-bbbb", 0.5)):
        env = {"HF_TOKEN": "plain-secret-value", "OTHER": "${env:KEPT}", "LEVEL": str(share)}
        here = answered(
            folder, {"a": right(12, share), "b": right(12, 0.8)}, name=name,
            tasks={
                "a": {"model": {"name": "org/a", "env": env}},
                "b": {"model": {"name": "org/b", "source": "/nowhere/b"}},
            },
        )  # fmt: skip
        write_atomic(here.plan_file, "name: plan\n")
        _worked(here)
    return folder


def _worked(here: Experiment) -> None:
    """Files that a worker of run task `a` leaves."""
    with Appender(here.worker_events("g0", "1_0-0")) as log:
        owner = {"job": "1_0", "restart": 0, "node": "n1", "host": "n1"}
        log.write({"event": "started", "seq": 1, "time": 10.0, "owner": owner})
        log.write({"event": "model_loading", "seq": 2, "time": 11.0, "model": "org/a"})
        log.write({"event": "model_ready", "seq": 3, "time": 21.0, "model": "org/a"})
        log.write({"event": "shard_claimed", "seq": 4, "time": 22.0, "shard": "a/00000"})
        log.write({"event": "finished", "seq": 5, "time": 30.0})
    here.worker_log("g0", "1_0-0").write_text(f"-- hpcbench starts {ENGINE}\nready\n")
    here.report_dir.mkdir()
    (here.report_dir / "report.html").write_text("<script>alert(1)</script>")
    (here.report_dir / "scores.svg").write_text("<svg onload='alert(1)'/>")
    (here.report_dir / "id_rsa").write_text("secret")
    (here.report_dir / "link.html").symlink_to("/etc/passwd")
    write_json(here.outcome_file, {"version": 1, "round": 0, "state": "done"})


@pytest.fixture(scope="module")
def api(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unguarded]:
    """The API over that home."""
    folder = tmp_path_factory.mktemp("index")
    index = open_index(f"sqlite:///{folder}/index.sqlite", home)
    for path in sorted((home / "experiments").iterdir()):
        _enter(index, Experiment(path))
    with unguarded(Portal(home, Options(plans=folder), index, Hub())) as running:
        yield running
    index.close()


HERE = "experiments/20261120-1432-plan-aaaa"
OTHER = "20261121-1432-plan-bbbb"


@pytest.fixture(scope="module")
def page(api: Unguarded) -> dict[str, Any]:
    """The page of run task `a`."""
    answer = api.ask("GET", f"{HERE}/run-tasks/a")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.body
    return found


# --- the page -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_page_has_scores_speed_and_how_requests_ended(page: dict[str, Any]) -> None:
    assert page["row"]["name"] == "a"
    assert [one["metric"] for one in page["metrics"]] == ["exact_match"]
    assert page["performance"]["answered"] == 12
    assert page["outcomes"] == {"ok": 12}
    assert {one["group"] for one in page["figures"]} >= {"quality", "speed"}


def test_a_page_says_what_happened_when(page: dict[str, Any]) -> None:
    reported = [(one["what"], one["begin"], one["end"]) for one in page["timeline"]]
    assert reported[:3] == [
        ("starting", 10.0, 11.0), ("loading", 11.0, 21.0), ("inference", 22.0, 30.0),
    ]  # fmt: skip


def test_secrets_are_in_no_definition_and_references_stay(page: dict[str, Any]) -> None:
    assert page["definitions"]["model"]["env"] == {
        "HF_TOKEN": "***", "OTHER": "${env:KEPT}", "LEVEL": "0.9",
    }  # fmt: skip
    assert "plain-secret-value" not in str(page)
    assert "hf_abcdefghijklmnop" not in str(page)


def test_commands_are_words_that_a_shell_takes_as_they_are(page: dict[str, Any]) -> None:
    lines = {one["title"]: one["text"] for one in page["commands"]}
    assert shlex.split(lines["Resume the run task"]) == [
        "hpcbench", "resume", "20261120-1432-plan-aaaa", "a",
    ]  # fmt: skip
    assert shlex.split(lines["Run the plan again"])[:2] == ["hpcbench", "rerun"]
    assert lines["Engine's command line, as the worker started it"].startswith(
        "/py -m vllm.serve /nowhere/m"
    )


def test_a_run_task_of_another_model_has_not_its_engine(api: Unguarded) -> None:
    titles = {one["title"] for one in api.ask("GET", f"{HERE}/run-tasks/b").body["commands"]}
    assert "Engine's command line, as the worker started it" not in titles
    assert "Run the plan again" in titles


def test_an_engine_in_an_image_can_be_started_by_hand(tmp_path: Path) -> None:
    here = answered(tmp_path, {"a": right(4, 1.0)})
    _worked(here)
    environment = {"kind": "apptainer", "path": "/cache/a b.sif", "packages": "/cache/p.sqsh"}
    manifest = {**read_json(here.manifest_file), "environments": {"": environment}}
    write_json(here.manifest_file, manifest)
    here = Experiment(here.path)
    found = commands(here, here.resolved.run_task("a"), list(worker_runs(here)))
    (line,) = [one.text for one in found if one.title.startswith("The same command in its image")]
    words = shlex.split(line)
    assert words[:3] == ["apptainer", "exec", "--containall"]
    assert words[words.index("/cache/a b.sif") + 1] == "/py"


def test_a_batch_script_is_shown_as_it_was_handed_to_slurm(tmp_path: Path) -> None:
    here = answered(tmp_path, {"a": right(4, 1.0)}, executor="slurm")
    groups = [asdict(one) for one in here.work.groups]
    with Appender(here.submission_file) as log:
        log.write({"event": "round", "seq": 1, "time": 1.0, "round": 0, "groups": groups})
        log.write({"event": "intent", "seq": 2, "time": 1.0, "step": "g0", "group": "g0"})
        log.write({"event": "submitted", "seq": 3, "time": 1.0, "step": "g0", "job": "4711"})
    here.jobs_dir.mkdir()
    script = "#!/bin/bash\n#SBATCH --array=0-3\nexport API_KEY=abcdefgh12345678\n"
    (here.jobs_dir / "4711_submission.sh").write_text(script)
    found = commands(here, here.resolved.run_task("a"), [])
    (text,) = [one.text for one in found if one.title == "Batch script of array 4711"]
    assert text == "#!/bin/bash\n#SBATCH --array=0-3\nexport API_KEY=***"


def test_plain_data_is_without_secrets_at_any_depth() -> None:
    found = without_secrets({"a": [{"API_KEY": "x" * 20, "n": 3}], "password": "${file:/p}"})
    assert found == {"a": [{"API_KEY": "***", "n": 3}], "password": "${file:/p}"}


# --- beside it ----------------------------------------------------------------------------------------


def test_provenance_says_how_to_run_the_same_again(api: Unguarded, home: Path) -> None:
    reported = api.ask("GET", f"{HERE}/provenance").body
    assert reported["plan"] == "name: plan\n"
    assert reported["reproduce"] == f"hpcbench rerun {home}/{HERE}"


def test_configuration_is_compared_with_any_experiment_without_secrets(api: Unguarded) -> None:
    assert api.ask("GET", f"{HERE}/configuration").body["baseline"] is None
    reported = api.ask("GET", f"{HERE}/configuration?baseline={OTHER}").body
    places = {one["path"]: (one["baseline"], one["experiment"]) for one in reported["differences"]}
    assert places["run_tasks.a.model.env.LEVEL"] == ("0.5", "0.9")
    assert "plain-secret-value" not in str(reported)


def test_the_whole_configuration_has_every_setting_and_no_secret(api: Unguarded) -> None:
    whole = api.ask("GET", f"{HERE}/configuration/whole").body
    assert whole["plan"]["name"] == "plan"
    assert (list(whole["run_tasks"]), whole["total"]) == (["a", "b"], 2)
    assert whole["run_tasks"]["a"]["model"]["env"] == {
        "HF_TOKEN": "***", "OTHER": "${env:KEPT}", "LEVEL": "0.9",
    }  # fmt: skip
    assert whole["run_tasks"]["b"]["model"]["source"] == "/nowhere/b"
    assert "slurm" in whole["site"]
    assert "plain-secret-value" not in str(whole)


def test_a_report_page_is_locked_up_and_everything_else_is_saved(api: Unguarded) -> None:
    headers = _raw(api, f"{HERE}/report/report.html").headers
    assert headers["content-type"].startswith("text/html")
    assert "sandbox" in headers["content-security-policy"]
    assert "allow-scripts" not in headers["content-security-policy"]
    assert "allow-same-origin" not in headers["content-security-policy"]
    headers = _raw(api, f"{HERE}/report/scores.svg").headers
    assert headers["content-disposition"].startswith("attachment")
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        f"{HERE}/report/id_rsa", f"{HERE}/report/link.html", f"{HERE}/report/missing.html",
        f"{HERE}/report/..%2fmanifest.json", f"{HERE}/report/.html", f"{HERE}/report/%2e%2e",
        f"{HERE}/logs/workers.missing.log", f"{HERE}/logs/jobs...%2f..%2fx.log",
        f"{HERE}/run-tasks/nothing", f"{HERE}/figures/nothing", f"{HERE}/run-tasks/a/figures/x",
        f"{HERE}/resources?run_task=nothing", f"{HERE}/configuration?baseline=nothing",
        f"{HERE}/configuration?baseline=..%2f..%2fetc", "experiments/nothing/logs",
        "experiments/..%2f..%2fetc/provenance", "experiments/.hidden/logs",
    ],
)  # fmt: skip
def test_what_is_not_there_is_reported_and_no_name_leads_elsewhere(
    api: Unguarded, path: str
) -> None:
    answer = api.ask("GET", path)
    assert (answer.status, answer.body["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "query", ["after=-1", "before=x", "lines=0", "lines=100000", "grep=" + "x" * 300]
)
def test_a_log_is_asked_for_within_bounds(api: Unguarded, query: str) -> None:
    assert api.ask("GET", f"{HERE}/logs/workers.g0.1_0-0.log?{query}").status == 422


def test_logs_of_a_run_task_are_those_of_its_workers(api: Unguarded) -> None:
    assert [one["id"] for one in api.ask("GET", f"{HERE}/logs?run_task=a").body] == [
        "workers.g0.1_0-0.log"
    ]
    assert api.ask("GET", f"{HERE}/logs?run_task=b").body == []


def test_an_experiment_that_is_damaged_is_reported_as_such(api: Unguarded, home: Path) -> None:
    broken = home / "experiments" / "20261122-1432-plan-cccc"
    broken.mkdir()
    (broken / "manifest.json").write_text("{}")
    (broken / "resolved.json").write_text("{")
    for path in ("logs", "figures", "resources", "provenance", "configuration", "run-tasks/a"):
        answer = api.ask("GET", f"experiments/{broken.name}/{path}")
        assert (answer.status, answer.body["code"]) == (409, "unreadable"), path


# --- regressions --------------------------------------------------------------------------------------


def test_a_change_that_is_not_there_cannot_be_noted(api: Unguarded) -> None:
    path = "regressions/0123456789abcdef/acknowledgement"
    assert api.ask("PUT", path, {"reason": "known"}).status == 404
    assert api.ask("DELETE", path).status == 404
    for body in ({}, {"reason": ""}, {"reason": "x" * 600}, {"reason": "x", "by": "somebody"}):
        assert api.ask("PUT", path, body).status == 422


def test_trends_are_there_even_of_an_empty_history(api: Unguarded) -> None:
    answer = api.ask("GET", "regressions")
    assert answer.status == 200
    assert answer.body["rows"] == []


def _raw(api: Unguarded, path: str) -> Answer:
    """An answer whose body is no JSON."""
    import http.client

    line = http.client.HTTPConnection("127.0.0.1", api.port, timeout=60)
    try:
        line.request("GET", f"/api/v1/{path}")
        found = line.getresponse()
        found.read()
        return Answer(found.status, None, {name.lower(): one for name, one in found.getheaders()})
    finally:
        line.close()
