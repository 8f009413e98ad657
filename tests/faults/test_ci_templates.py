"""The pipelines that ship, run as far as a machine without those services can: every step's shell, for real.

The services are FAKES here: `gh` keeps comments in a file, GitLab is a small server, `pip install`
does nothing, and where a cluster is reached over SSH `hpcbench` itself only writes down what it was asked.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench.cli.main import main
from tests.conftest import unavailable
from tests.faults.conftest import Bench

TEMPLATES = Path(__file__).parent.parent.parent / "ci_templates"

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module", autouse=True)
def _shell() -> None:
    """The steps are bash, and GitLab's call curl."""
    for program in ("bash", "curl"):
        if shutil.which(program) is None:
            unavailable(f"no {program} on this machine")


FAKE_PYTHON = """\
#!/bin/sh
# FAKE: pip installs nothing, for hpcbench is here.
[ "$1 $2 $3" = "-m pip install" ] && { echo "$4" >> "$FAKES/installed"; exit 0; }
exec REAL "$@"
"""

FAKE_GH = """\
#!REAL
# FAKE of GitHub's gh: `gh api` on the comments of one pull request, kept in a file.
import json, os, pathlib, sys
kept = pathlib.Path(os.environ["FAKES"], "comments.json")
comments = json.loads(kept.read_text()) if kept.exists() else []
words = sys.argv[1:]
assert words.pop(0) == "api" and os.environ["GH_TOKEN"]
method = words[words.index("--method") + 1] if "--method" in words else "GET"
(path,) = (word for word in words if word.startswith("repos/"))
if method == "GET":
    assert "--jq" in words and "--paginate" in words
    for one in comments:
        print(one["id"], one["body"].splitlines()[0], sep="\\t")
    sys.exit()
field = words[words.index("-F") + 1]
assert field.startswith("body=@")
body = pathlib.Path(field[len("body=@"):]).read_text()
if method == "POST":
    assert path == "repos/me/docs/issues/7/comments", path
    comments.append({"id": 100 + len(comments), "body": body})
else:
    assert method == "PATCH", method
    (old,) = (one for one in comments if path == f"repos/me/docs/issues/comments/{one['id']}")
    old["body"] = body
kept.write_text(json.dumps(comments))
"""

FAKE_HPCBENCH = """\
#!REAL
# FAKE of hpcbench itself: writes down what it was asked; a cluster would be needed for more.
import json, os, pathlib, sys
with pathlib.Path(os.environ["FAKES"], "asked").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "submit":
    print(json.dumps({"id": "20261120-1432-demo-aaaa"}))
if sys.argv[1] == "gate":
    sys.exit(4)
if sys.argv[1] == "report":
    folder = pathlib.Path(sys.argv[sys.argv.index("--to") + 1])
    (folder / "comment.md").write_text("<!-- hpcbench: demo -->\\n")
"""


class Runner:
    """A CI server's machine with a checkout of the user's repository."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench, self.folder, self.fakes = bench, folder, folder / "fakes"
        self.checkout = folder / "checkout"
        self.checkout.mkdir(parents=True)
        self.fakes.mkdir()
        (self.checkout / "registries").symlink_to(bench.folder / "registry")
        plan = bench.plan()
        plan.rename(self.checkout / "plan.yaml")
        self.fake("python", FAKE_PYTHON)
        self.fake("gh", FAKE_GH)
        (self.fakes / "hpcbench").symlink_to(Path(sys.executable).with_name("hpcbench"))
        home = self.checkout / ".hpcbench"
        home.mkdir()
        (home / "cache").symlink_to(bench.home / "cache")
        self.environ = {
            **{
                key: value
                for key, value in bench.environ.items()
                if not key.startswith("HPCBENCH_")
            },
            "PATH": f"{self.fakes}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "FAKES": str(self.fakes),
            "HOME": str(folder / "home"),
        }
        (folder / "home").mkdir()

    def fake(self, name: str, text: str) -> None:
        path = self.fakes / name
        path.unlink(missing_ok=True)
        path.write_text(text.replace("REAL", sys.executable))
        path.chmod(0o755)

    def shell(self, text: str, environ: Mapping[str, str], *options: str) -> int:
        """Run shell as the service does; its exit code."""
        done = subprocess.run(
            ["bash", *options, "-c", text], cwd=self.checkout, env={**self.environ, **environ},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        assert "Traceback" not in self.said, self.said
        return done.returncode

    @property
    def report(self) -> Path:
        return self.checkout / "hpcbench-report"


@pytest.fixture
def runner(bench: Bench, tmp_path: Path) -> Runner:
    return Runner(bench, tmp_path / "runner")


def found_in(report: Path) -> tuple[str, int]:
    """The comment's headline, and how many tests failed."""
    root = ET.parse(report / "junit.xml").getroot()  # noqa: S314 - our own
    headline = (report / "comment.md").read_text().splitlines()[1]
    assert len((report / "report.html").read_text()) > 5_000
    return headline, int(root.get("failures", ""))


# --- GitHub --------------------------------------------------------------------------------------------


class GitHub:
    """Runs the jobs of the workflow, as its `if`s would have it."""

    def __init__(self, runner: Runner, event: str, **chosen: str) -> None:
        self.runner, self.event = runner, event
        text = (TEMPLATES / "github.yml").read_text()
        self.workflow = yaml.safe_load(text)
        self.values = {
            "github.event_name == 'push'": str(event == "push").lower(),
            "github.token": "a-token-that-is-secret",
            "github.event.pull_request.number": "7",
            "secrets.HPCBENCH_SSH_KEY": "KEY\nof several lines",
            "vars.HPCBENCH_KNOWN_HOSTS": "login ssh-ed25519 AAAA",
        }
        self.environ = {
            **{key: str(value) for key, value in self.workflow["env"].items()},
            "HPCBENCH_LIMIT": "16",
            "GITHUB_WORKSPACE": str(runner.checkout),
            "GITHUB_ENV": str(runner.folder / "github.env"),
            "GITHUB_STEP_SUMMARY": str(runner.folder / "summary.md"),
            "GITHUB_REPOSITORY": "me/docs",
            **chosen,
        }

    def job(self, name: str, *skipped: str) -> int:
        """Exit code of the first step that fails."""
        for step in self.workflow["jobs"][name]["steps"]:
            if "run" not in step or step["name"] in skipped:
                continue
            own = {key: self._value(value) for key, value in step.get("env", {}).items()}
            assert "${{" not in step["run"]  # nothing of a pull request is pasted into a shell
            lines = Path(self.environ["GITHUB_ENV"])
            kept = dict(
                line.split("=", 1) for line in (lines.read_text() if lines.exists() else "").split()
            )
            code = self.runner.shell(step["run"], {**self.environ, **kept, **own}, "-e")
            if code:
                return code
        return 0

    def _value(self, text: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: self.values[match[1]], str(text))


def test_on_github_a_baseline_is_set_and_a_worse_candidate_stops_the_pull_request(
    runner: Runner, bench: Bench
) -> None:
    assert GitHub(runner, "push").job("benchmark", "Connect") == 0, runner.said
    assert found_in(runner.report) == ("### hpcbench: plan faults, not compared with a baseline", 0)
    assert (runner.fakes / "installed").read_text() == "{hpcbench}[hf,ssh]\n"
    first = (runner.report / "experiment.txt").read_text().strip()
    # Sixteen documents prove little: a policy for so few says that the same answers pass.
    (runner.checkout / "policy.yaml").write_text(
        "schema_version: 1\nname: few\nidentical: pass\nmetrics: {'*': {absolute: 0.02}}\n"
    )
    shutil.rmtree(runner.report)
    same = GitHub(runner, "pull_request", HPCBENCH_POLICY="policy.yaml")
    assert same.job("benchmark", "Connect") == 0, runner.said
    headline, failures = found_in(runner.report)
    assert headline == f"### hpcbench: GO for plan faults against `{first}`"
    assert failures == 0
    shutil.copytree(runner.report, runner.checkout, dirs_exist_ok=True)  # download-artifact
    assert same.job("comment") == 0, runner.said
    shutil.rmtree(runner.report)
    bench.script(broken="question 00[0-7]")
    worse = GitHub(runner, "pull_request", HPCBENCH_POLICY="policy.yaml")
    assert worse.job("benchmark", "Connect") == 4, runner.said
    headline, failures = found_in(runner.report)
    assert headline == f"### hpcbench: NO-GO for plan faults against `{first}`"
    assert failures >= 1
    assert "### hpcbench: NO-GO" in Path(worse.environ["GITHUB_STEP_SUMMARY"]).read_text()
    shutil.copytree(runner.report, runner.checkout, dirs_exist_ok=True)
    assert worse.job("comment") == 0, runner.said
    (comment,) = json.loads((runner.fakes / "comments.json").read_text())  # the old one, changed
    assert comment["body"].splitlines()[1] == headline


def test_on_github_a_plan_that_is_wrong_ends_with_its_exit_code(runner: Runner) -> None:
    (runner.checkout / "plan.yaml").write_text("name: x\nrun_taks: []\n")
    assert GitHub(runner, "push").job("benchmark", "Connect") == 2
    assert "run_taks" in runner.said


def test_on_github_a_cluster_is_reached_with_a_key_that_no_argument_shows(runner: Runner) -> None:
    runner.fake("hpcbench", FAKE_HPCBENCH)
    remote = GitHub(runner, "push", HPCBENCH_SSH="me@login.example.org", HPCBENCH_POLICY="strict")
    assert remote.job("benchmark") == 4, runner.said
    key = runner.folder / "home/.ssh/hpcbench"
    assert key.read_text() == "KEY\nof several lines\n"
    assert key.stat().st_mode & 0o777 == 0o600
    asked = [json.loads(line) for line in (runner.fakes / "asked").read_text().splitlines()]
    known = "20261120-1432-demo-aaaa"
    assert asked == [
        ["init", "--force", "--site", "ci", "--ssh", "me@login.example.org",
         "--set", f"ssh.identity={key}"],
        ["submit", "plan.yaml", "--limit", "16", "--site", "ci", "--wait", "--json"],
        ["gate", known, "--baseline", "main", "--policy", "strict", "--site", "ci"],
        ["report", known, "--format", "html,junit,comment", "--to", "hpcbench-report", "--site", "ci"],
    ]  # fmt: skip


def test_the_verbs_of_the_templates_are_understood() -> None:
    from hpcbench.cli.parse import parser

    known = "20261120-1432-demo-aaaa"
    for line in (
        "init --force --site ci --ssh me@h --set ssh.identity=/x",
        "submit plan.yaml --limit 16 --site ci --wait --json",
        f"gate {known} --baseline main --policy strict --site ci",
        f"report {known} --format html,junit,comment --to out --site ci",
        "baseline show main", f"baseline set {known} --name main", "gc --older 7 --yes",
    ):  # fmt: skip
        parser().parse_args(line.split())


# --- GitLab --------------------------------------------------------------------------------------------


class GitLab(http.server.BaseHTTPRequestHandler):
    """FAKE of the notes of one merge request."""

    notes: list[dict[str, Any]]

    def _checked(self) -> str:
        assert self.headers["PRIVATE-TOKEN"] == "glpat-secret"
        return urllib.parse.urlsplit(self.path).path

    def do_GET(self) -> None:
        assert self._checked() == "/api/v4/projects/5/merge_requests/7/notes"
        self._answer(self.notes)

    def do_POST(self) -> None:
        assert self._checked() == "/api/v4/projects/5/merge_requests/7/notes"
        self.notes.append({"id": 40 + len(self.notes), "body": self._body()})
        self._answer(self.notes[-1])

    def do_PUT(self) -> None:
        number = int(self._checked().rpartition("/")[2])
        (note,) = (one for one in self.notes if one["id"] == number)
        note["body"] = self._body()
        self._answer(note)

    def _body(self) -> str:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        return urllib.parse.parse_qs(form)["body"][0]

    def _answer(self, data: Any) -> None:
        text = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def gitlab() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    notes: list[dict[str, Any]] = [{"id": 1, "body": "looks good to me"}]
    handler = type("Handler", (GitLab,), {"notes": notes})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/api/v4", notes
    server.shutdown()
    server.server_close()


def gitlab_job(runner: Runner, name: str, **environ: str) -> int:
    """Run a job's script: one shell, as the runner does."""
    pipeline = yaml.safe_load((TEMPLATES / "gitlab.yml").read_text())
    variables = {key: str(value) for key, value in pipeline[".hpcbench"]["variables"].items()}
    variables["HPCBENCH_HOME"] = str(runner.checkout / ".hpcbench")
    chosen = {**variables, "HPCBENCH_LIMIT": "16", **environ}
    return runner.shell("\n".join(pipeline[name]["script"]), chosen, "-eo", "pipefail")


@pytest.mark.campaign  # the same runs on GitHub above
def test_on_gitlab_without_a_baseline_nothing_passes_and_the_note_is_kept_up_to_date(
    runner: Runner, gitlab: tuple[str, list[dict[str, Any]]]
) -> None:
    url, notes = gitlab
    request = {
        "CI_API_V4_URL": url, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "7",
        "HPCBENCH_GITLAB_TOKEN": "glpat-secret",
    }  # fmt: skip
    assert gitlab_job(runner, "hpcbench", HPCBENCH_MAY_SET_BASELINE="false") == 5, runner.said
    assert found_in(runner.report)[0] == "### hpcbench: plan faults, not compared with a baseline"
    assert gitlab_job(runner, "hpcbench comment", **request) == 0, runner.said
    assert "glpat" not in runner.said
    assert [one["id"] for one in notes] == [1, 41]
    assert gitlab_job(runner, "hpcbench", HPCBENCH_MAY_SET_BASELINE="true") == 0, runner.said
    assert list((runner.checkout / ".hpcbench/baselines/main").iterdir())
    with (runner.report / "comment.md").open("a") as file:
        file.write("and more & more @all\n")
    assert gitlab_job(runner, "hpcbench comment", **request) == 0, runner.said
    assert len(notes) == 2
    assert notes[1]["body"] == (runner.report / "comment.md").read_text()


def test_on_gitlab_a_cluster_is_reached_with_files_of_variables(
    runner: Runner, tmp_path: Path
) -> None:
    runner.fake("hpcbench", FAKE_HPCBENCH)
    for name in ("key", "hosts"):
        (tmp_path / name).write_text(f"{name}\n")
    there = {
        "HPCBENCH_SSH": "me@login.example.org", "HPCBENCH_SSH_KEY": str(tmp_path / "key"),
        "HPCBENCH_KNOWN_HOSTS": str(tmp_path / "hosts"),
    }  # fmt: skip
    assert gitlab_job(runner, "hpcbench", **there) == 4, runner.said
    assert (runner.folder / "home/.ssh/hpcbench").stat().st_mode & 0o777 == 0o600
    verbs = [json.loads(line)[0] for line in (runner.fakes / "asked").read_text().splitlines()]
    assert verbs == ["init", "submit", "gate", "report"]


# --- what they say -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--builtin-schema", "vendor.github-workflows", "github.yml"],
        ["--builtin-schema", "vendor.github-workflows", "../.github/workflows/release.yml"],
        ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", "gitlab.yml"],
    ],
)
def test_all_keep_to_the_published_schema(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", *arguments[:-1], arguments[-1]]
    done = subprocess.run(command, cwd=TEMPLATES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_release_is_published_by_a_trusted_workflow_and_no_password() -> None:
    text = (TEMPLATES.parent / ".github/workflows/release.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    rights = {name: set(job["permissions"]) for name, job in workflow["jobs"].items()}
    publishing = {"id-token", "attestations", "contents"}
    assert rights == {"build": {"contents"}, "install": set(), "publish": publishing}
    assert "secrets." not in text
    used = re.findall(r"uses: (\S+)", text)
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in used)
    names = [one.partition("@")[0] for one in used]
    assert names[-2:] == ["actions/attest-build-provenance", "pypa/gh-action-pypi-publish"]
    steps = [step for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert not [step for step in steps if "${{" in step["run"]]


def test_github_is_given_no_more_rights_than_each_job_needs() -> None:
    workflow = yaml.safe_load((TEMPLATES / "github.yml").read_text())
    assert workflow["permissions"] == {}
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items()}
    assert rights == {"benchmark": {"contents": "read"}, "comment": {"pull-requests": "write"}}
    assert "pull_request_target" not in workflow[True]  # YAML reads `on` as true
    assert workflow["concurrency"]["group"]
    text = (TEMPLATES / "github.yml").read_text()
    used = re.findall(r"uses: (\S+)", text)
    assert used and all(re.fullmatch(r"actions/[\w/-]+@[0-9a-f]{40}", one) for one in used)


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_init_writes_a_pipeline_and_never_over_another(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--ci", service]) == 0
    assert main(["init", "--ci", service]) == 2
    (path,) = (one for one in tmp_path.rglob("*.yml"))
    (wheel,) = (one for one in tmp_path.rglob("*.whl"))
    filled_in = path.read_text()
    assert f'"{wheel.relative_to(tmp_path)}[hf,ssh]"' in filled_in
    assert zipfile.ZipFile(wheel).testzip() is None
    template = (TEMPLATES / f"{service}.yml").read_text()
    assert filled_in == template.replace("{hpcbench}", str(wheel.relative_to(tmp_path)))
    path.write_text("changed")
    assert main(["init", "--ci", service, "--force"]) == 0
    assert path.read_text() != "changed"
