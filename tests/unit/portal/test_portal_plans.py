"""Plans and definitions over HTTP: found, checked, written, submitted; and what is refused."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.plan_starters import STARTERS
from hpcbench.portal.routes import plans as routes
from hpcbench.portal.user_definitions import Definitions
from hpcbench.registry.source import MAX_BYTES
from tests.unit.portal.asking import scored
from tests.unit.portal.unguarded import Answer, Unguarded, unguarded

pytestmark = pytest.mark.long

PLAN = """\
schema_version: 1
name: small
run_tasks:
  - name: vqa
    ml_task: vqa
    model: tiny-vlm
    dataset: demo_vqa
    split: easy
    prompt: demo_vqa
    generation: {max_tokens: 96}
    resources: {cpus: 1, memory_gb: 3, time_limit: "00:30:00"}
"""

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
)

Serve = Callable[..., Unguarded]


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of plans with one plan and one model of its own; the user has no registry."""
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path / "site"))
    folder = tmp_path / "plans"
    (folder / "registries" / "models" / "own").mkdir(parents=True)
    (folder / "small.yaml").write_text(PLAN)
    (folder / "registries" / "models" / "own" / "m.yaml").write_text(
        "name: own/m\nengine: vllm\nsource: hf://a/b\n"
    )
    return folder


@pytest.fixture
def serve(plans: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts a portal over the folder; editing is allowed unless said otherwise."""
    open_ones: list[tuple[Any, Portal]] = []

    def start(may_edit: bool = True, may_submit: bool = False) -> Unguarded:
        options = Options(plans, may_edit=may_edit, may_submit=may_submit, umask=0o027)
        portal = Portal(tmp_path / "home", options, None, Hub())  # type: ignore[arg-type]
        context = unguarded(portal)
        open_ones.append((context, portal))
        return context.__enter__()

    yield start
    for context, portal in open_ones:
        routes.desk_of(portal).checker.close()
        context.__exit__(None, None, None)


def row(api: Unguarded, kind: str, name: str, origin: str = "own") -> dict[str, Any]:
    rows = api.ask("GET", f"definitions?kind={kind}").body
    return next(one for one in rows if (one["name"], one["origin"]) == (name, origin))


def own_plans(api: Unguarded) -> list[str]:
    rows = api.ask("GET", "definitions?kind=plans").body
    return [one["name"] for one in rows if one["origin"] == "own"]


def opened(api: Unguarded, name: str = "small") -> dict[str, Any]:
    body = api.ask("GET", f"definitions/{row(api, 'plans', name)['id']}").body
    assert isinstance(body, dict)
    return body


def write(api: Unguarded, definition: dict[str, Any], text: str, etag: str | None = None) -> Answer:
    path = f"definitions/{definition['row']['id']}"
    return api.ask("PUT", path, {"text": text}, If_Match=etag or definition["etag"])


def check(api: Unguarded, text: str, **more: Any) -> dict[str, Any]:
    answer = api.ask("POST", "definitions/check", {"kind": "plans", "text": text, **more})
    assert answer.status == 200, answer.body
    assert isinstance(answer.body, dict)
    return answer.body


def test_a_check_tells_unknown_names_beside_values_that_do_not_fit(serve: Serve) -> None:
    reported = "\n".join(one["message"] for one in check(serve(), PLAN_WITH_FAULTS)["problems"])
    assert "unknown dataset 'nowhere'" in reported
    assert "time_limit: must be of the form [DAYS-]HH:MM:SS" in reported
    assert "limit: must be greater than 0" in reported
    assert "^" not in reported


def test_what_a_request_lacks_is_reported_in_words(serve: Serve) -> None:
    api = serve()
    fault = api.ask("POST", "definitions", {"kind": "elsewhere", "name": 3, "text": ""})
    assert fault.status == 422
    assert "body.name: must be text" in fault.body["error"]
    for word in ("Input should", "pattern", "^"):
        assert word not in fault.body["error"]


PLAN_WITH_FAULTS = """\
schema_version: 1
name: small
run_tasks:
  - name: vqa
    ml_task: vqa
    model: tiny-vlm
    dataset: nowhere
    prompt: demo_vqa
    limit: -3
    resources: {cpus: 1, time_limit: soon}
"""


# --- finding ------------------------------------------------------------------------------------------------


def test_lists_plans_and_registries_and_says_which_may_be_written(serve: Serve) -> None:
    api = serve()
    assert own_plans(api) == ["small"]
    assert row(api, "models", "own/m")["writable"]
    assert not row(api, "models", "tiny-vlm", "shipped")["writable"]


def test_other_yaml_files_hidden_folders_and_experiments_are_no_plans(
    serve: Serve, plans: Path
) -> None:
    (plans / "compose.yaml").write_text("services: {}\n")
    for folder in (".git", "past"):
        (plans / folder).mkdir()
        (plans / folder / "plan.yaml").write_text(PLAN)
    (plans / "past" / "manifest.json").write_text("{}")
    (plans / "group").mkdir()
    (plans / "group" / "other.yml").write_text(PLAN)
    assert own_plans(serve()) == ["group/other", "small"]


def test_a_shipped_definition_that_an_own_one_replaces_does_not_count(
    serve: Serve, plans: Path
) -> None:
    (plans / "registries" / "models" / "tiny-vlm.yaml").write_text("name: tiny-vlm\nengine: vllm\n")
    api = serve()
    assert not row(api, "models", "tiny-vlm", "shipped")["counts"]
    assert row(api, "models", "tiny-vlm")["counts"]


def test_no_path_and_no_foreign_id_leads_anywhere(serve: Serve) -> None:
    api = serve()
    for bad in ("..%2f..%2fetc%2fpasswd", "small.yaml", "%00", "0" * 20, "~root"):
        answer = api.ask("GET", f"definitions/{bad}")
        assert (answer.status, answer.body["code"]) == (404, "not_found")


def test_links_are_neither_listed_nor_followed(serve: Serve, plans: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(PLAN)
    (plans / "link.yaml").symlink_to(secret)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "plan.yaml").write_text(PLAN)
    (plans / "folder").symlink_to(tmp_path / "elsewhere")
    api = serve()
    assert own_plans(api) == ["small"]


def test_a_file_exchanged_for_a_link_after_it_was_found_is_refused(
    serve: Serve, plans: Path, tmp_path: Path
) -> None:
    api = serve()
    definition = opened(api)
    (tmp_path / "secret").write_text("password: 1\n")
    (plans / "small.yaml").unlink()
    (plans / "small.yaml").symlink_to(tmp_path / "secret")
    assert api.ask("GET", f"definitions/{definition['row']['id']}").status in (403, 404)
    assert write(api, definition, PLAN + "# new\n").status in (403, 404)
    assert (tmp_path / "secret").read_text() == "password: 1\n"


def test_a_folder_exchanged_for_a_link_is_not_written_into(plans: Path, tmp_path: Path) -> None:
    definitions = Definitions(plans, may_edit=True)
    file = next(one for one in definitions.all().values() if one.name == "own/m")
    _, etag = definitions.read(file)
    (tmp_path / "elsewhere").mkdir()
    (plans / "registries" / "models" / "own").rename(tmp_path / "elsewhere" / "own")
    (plans / "registries" / "models" / "own").symlink_to(tmp_path / "elsewhere" / "own")
    with pytest.raises(Exception, match="cannot be written"):
        definitions.write(file, "name: own/m\n", etag)
    assert "hf://a/b" in (tmp_path / "elsewhere" / "own" / "m.yaml").read_text()


def test_secrets_in_plain_text_are_masked_where_they_cannot_be_edited(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "config" / "hpcbench" / "sites").mkdir(parents=True)
    profile = tmp_path / "config" / "hpcbench" / "sites" / "default.yaml"
    profile.write_text("name: default\nenv:\n  HF_TOKEN: hf_abcdefg\n  LANG: C\n")
    api = serve()
    text = api.ask("GET", f"definitions/{row(api, 'sites', 'default', 'user')['id']}").body["text"]
    assert "hf_abcdefg" not in text
    assert "LANG: C" in text


# --- writing ------------------------------------------------------------------------------------------------


def test_writes_a_plan_as_a_whole_with_the_mode_it_had(serve: Serve, plans: Path) -> None:
    (plans / "small.yaml").chmod(0o640)
    api = serve()
    definition = opened(api)
    answer = write(api, definition, PLAN.replace("small", "other"))
    assert answer.status == 200
    assert answer.headers["etag"] == answer.body["etag"] != definition["etag"]
    assert "name: other" in (plans / "small.yaml").read_text()
    assert stat.S_IMODE((plans / "small.yaml").stat().st_mode) == 0o640
    assert [one.name for one in plans.iterdir()] == ["small.yaml", "registries"] or len(
        list(plans.iterdir())
    ) == 2


def test_a_change_by_another_writer_is_not_overwritten(serve: Serve, plans: Path) -> None:
    api = serve()
    definition = opened(api)
    (plans / "small.yaml").write_text(PLAN + "# theirs\n")
    answer = write(api, definition, PLAN + "# mine\n")
    assert (answer.status, answer.body["code"]) == (412, "conflict")
    assert (plans / "small.yaml").read_text().endswith("# theirs\n")
    gone = api.ask("DELETE", f"definitions/{definition['row']['id']}", If_Match=definition["etag"])
    assert gone.status == 412


def test_of_two_writers_at_once_one_learns_of_the_other(serve: Serve) -> None:
    api = serve()
    definition = opened(api)
    codes: list[int] = []

    def one(number: int) -> None:
        while (answer := write(api, definition, f"{PLAN}# {number}\n")).status == 503:
            time.sleep(0.05)
        codes.append(answer.status)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200, 412, 412, 412]


def test_without_if_match_nothing_is_written(serve: Serve) -> None:
    api = serve()
    definition = opened(api)
    answer = api.ask("PUT", f"definitions/{definition['row']['id']}", {"text": PLAN})
    assert answer.status == 422


def test_makes_a_definition_below_the_folder_of_its_kind(serve: Serve, plans: Path) -> None:
    api = serve()
    new = {"kind": "datasets", "name": "group/pages", "text": "name: group/pages\n"}
    answer = api.ask("POST", "definitions", new)
    assert answer.status == 201
    made = plans / "registries" / "datasets" / "group" / "pages.yaml"
    assert made.read_text() == "name: group/pages\n"
    assert stat.S_IMODE(made.stat().st_mode) == 0o640
    again = api.ask("POST", "definitions", new)
    assert (again.status, again.body["code"]) == (409, "conflict")
    id = answer.body["row"]["id"]
    assert api.ask("DELETE", f"definitions/{id}", If_Match=answer.body["etag"]).status == 204
    assert not made.exists()
    assert api.ask("POST", "definitions", new).body["row"]["id"] == id  # the way back


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../../x", ".hidden", "a//b", "a\0b", "-x", "a" * 200, "x.yaml",
     "registries/models/x", "a/.b/c", "a\nb", ""],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(serve: Serve, plans: Path, name: str) -> None:
    before = sorted(plans.rglob("*"))
    answer = serve().ask("POST", "definitions", {"kind": "plans", "name": name, "text": PLAN})
    assert answer.status == 422
    assert sorted(plans.rglob("*")) == before


def test_a_portal_without_the_permission_writes_nothing(serve: Serve, plans: Path) -> None:
    api = serve(may_edit=False)
    definition = opened(api)
    assert not definition["row"]["writable"]
    for answer in (
        write(api, definition, PLAN + "# new\n"),
        api.ask("POST", "definitions", {"kind": "plans", "name": "x", "text": PLAN}),
        api.ask("DELETE", f"definitions/{definition['row']['id']}", If_Match=definition["etag"]),
    ):
        assert (answer.status, answer.body["code"]) == (403, "refused")
        assert "--allow-edit" in answer.body["remedy"]
    assert (plans / "small.yaml").read_text() == PLAN


def test_shipped_definitions_are_never_written(serve: Serve) -> None:
    api = serve()
    id = row(api, "models", "tiny-vlm", "shipped")["id"]
    found = api.ask("GET", f"definitions/{id}").body
    answer = api.ask("PUT", f"definitions/{id}", {"text": "name: x\n"}, If_Match=found["etag"])
    assert answer.status == 403


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (BOMB, 422, "not_yaml"),
        ("a: &a [*a]\n", 422, "not_yaml"),
        ("x: " + "[" * 500, 422, "not_yaml"),
        ("name: [unclosed\n", 422, "not_yaml"),
        ("- a list\n", 422, "not_yaml"),
        ("name: !!python/object/apply:os.system [id]\n", 422, "not_yaml"),
        ("#" * (MAX_BYTES + 1), 413, "too_large"),
    ],
)
def test_what_is_no_definition_is_not_written(
    serve: Serve, plans: Path, text: str, status: int, code: str
) -> None:
    api = serve()
    answer = write(api, opened(api), text)
    assert (answer.status, answer.body["code"]) == (status, code)
    assert (plans / "small.yaml").read_text() == PLAN


# --- checking -----------------------------------------------------------------------------------------------


def test_unsaved_text_is_checked_as_if_it_were_saved(serve: Serve, plans: Path) -> None:
    api = serve(may_edit=False)
    found = check(api, PLAN, id=row(api, "plans", "small")["id"], estimate=True)
    assert found["problems"] == []
    (task,) = found["run_tasks"]
    assert (task["model"], task["dataset"]) == ("tiny-vlm", "demo_vqa/easy")
    assert task["samples"] == found["estimate"]["samples"] > 0
    assert any("GPU" in line or "CPU-hours" in line for line in found["estimate"]["lines"])
    assert any("submit small.yaml" in one["text"] for one in found["commands"])
    assert (plans / "small.yaml").read_text() == PLAN


def test_mistakes_are_reported_at_their_place_with_what_was_meant(serve: Serve) -> None:
    wrong = PLAN.replace("ml_task: vqa", "ml_task: vqaa").replace("    split", "    splitt")
    found = check(serve(), wrong, name="new")
    places = {(one["line"], one["column"]): one for one in found["problems"]}
    assert "did you mean 'split'" in places[8, 5]["remedy"]
    assert found["run_tasks"] == []
    found = check(serve(), PLAN.replace("ml_task: vqa", "ml_task: vqaa"), name="new")
    (problem,) = found["problems"]
    assert (problem["line"], problem["column"]) == (5, 14)
    assert "did you mean 'vqa'" in problem["message"]
    assert [one["name"] for one in found["run_tasks"]] == ["vqa"]  # as far as it can be read


def test_a_mistake_in_another_definition_is_reported_with_its_name(
    serve: Serve, plans: Path
) -> None:
    (plans / "registries" / "models" / "own" / "m.yaml").write_text("name: own/m\nengin: vllm\n")
    found = check(serve(), PLAN.replace("model: tiny-vlm", "model: own/m"), name="new")
    assert {one["file"] for one in found["problems"]} == {"models/own/m"}
    assert all(one["definition"] for one in found["problems"])


def test_definitions_of_registries_are_checked_too(serve: Serve) -> None:
    api = serve()
    body = {"kind": "models", "name": "own/new", "text": "name: own/new\nengine: vlm\n"}
    found = api.ask("POST", "definitions/check", body).body
    assert "did you mean 'vllm'" in str(found["problems"])


def test_a_secret_in_plain_text_is_warned_of(serve: Serve) -> None:
    text = f"{PLAN}notifications:\n  - plugin: webhook\n    options: {{api_token: abcdefgh}}\n"
    found = check(serve(), text, name="new")
    warnings = [one for one in found["problems"] if one["severity"] == "warning"]
    assert [one["line"] for one in warnings] == [14]


def test_a_bomb_and_an_endless_matrix_end_in_a_word(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = serve()
    assert "with aliases expanded" in str(check(api, BOMB, name="new")["problems"])
    names = {kind: ", ".join(f"{kind}{n}" for n in range(900)) for kind in ("m", "d", "p")}
    endless = (
        f"name: x\nmatrix:\n  - ml_task: vqa\n    models: [{names['m']}]\n"
        f"    datasets: [{names['d']}]\n    prompts: [{names['p']}]\n"
    )
    body = {"kind": "plans", "name": "new", "text": endless}
    with monkeypatch.context() as patch:
        patch.setattr("hpcbench.portal.plan_checks.CHECK_SECONDS", 4)
        answer = api.ask("POST", "definitions/check", body)
    assert answer.status in (422, 503)
    assert answer.body["code"] in ("too_long", "too_much")
    assert check(api, PLAN, name="new")["problems"] == []  # and the portal lives


def test_a_module_beside_the_plans_is_not_imported(serve: Serve, plans: Path) -> None:
    (plans / "trap.py").write_text("from pathlib import Path\nPath('sprung').touch()\n")
    text = f"{PLAN}notifications:\n  - plugin: trap.Trap\n"
    found = check(serve(), text, name="new")
    assert "needs module 'trap', which is not installed" in str(found["problems"])
    assert not (plans / "sprung").exists()


def test_every_starter_is_right_as_it_is(serve: Serve) -> None:
    api = serve()
    assert {one["name"] for one in api.ask("GET", "definitions/starters").body}
    for one in STARTERS:
        text = one.text.replace("NAME", "own-one")
        body = {"kind": one.kind, "name": "own-one", "text": text}
        found = api.ask("POST", "definitions/check", body).body
        wrong = [p for p in found["problems"] if "no such folder" not in p["message"]]
        assert not wrong, (one.name, wrong)


def test_a_form_is_offered_definitions_with_their_figures_and_faults(
    serve: Serve, plans: Path
) -> None:
    models = plans / "registries" / "models" / "own"
    (models / "m.yaml").write_text(
        "name: own/m\nengine: vllm\nsource: hf://a/b\ngpus: 2\ngpu_memory_gb: 40\n"
    )
    (models / "bad.yaml").write_text("name: own/bad\nengin: vllm\n")
    api = serve()
    found = {(one["kind"], one["name"]): one for one in api.ask("GET", "definitions/choices").body}
    assert found["models", "own/m"]["gpus"] == 2
    assert found["models", "own/m"]["gpu_memory_gb"] == 40
    assert "engin" in found["models", "own/bad"]["fault"]
    assert found["datasets", "docvqa"]["samples"] == 5349
    assert found["ml_tasks", "vqa"]["fields"] == ["question"]
    assert {kind for kind, _ in found} == {"ml_tasks", "models", "datasets", "prompts"}


def test_schemas_are_those_of_the_command_line(serve: Serve) -> None:
    api = serve()
    schema = api.ask("GET", "schemas/plans").body
    assert schema["title"] == "hpcbench experiments"
    assert "run_tasks" in schema["properties"]
    assert api.ask("GET", "schemas/none").status == 422


# --- submitting ---------------------------------------------------------------------------------------------


def ended(api: Unguarded, submission: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        body = api.ask("GET", f"submissions/{submission}").body
        assert isinstance(body, dict)
        if body["state"] != "running":
            return body
        time.sleep(0.1)
    raise AssertionError("it does not end")


def test_nothing_is_submitted_without_the_permission(serve: Serve) -> None:
    api = serve()
    definition = opened(api)
    body = {"definition": definition["row"]["id"], "etag": definition["etag"]}
    answer = api.ask("POST", "submissions", body)
    assert (answer.status, answer.body["code"]) == (403, "refused")
    assert "--allow-submit" in answer.body["remedy"]
    assert api.ask("GET", "submissions").status == 405


def test_a_submission_runs_the_command_and_keeps_what_it_said(
    serve: Serve, plans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.portal.user_commands.started_with", lambda: dict(os.environ))
    (plans / "small.yaml").write_text(PLAN.replace("model: tiny-vlm", "model: absent"))
    api = serve(may_submit=True)
    definition = opened(api)
    body = {"definition": definition["row"]["id"], "etag": definition["etag"]}
    answer = api.ask("POST", "submissions", body)
    assert answer.status == 202
    done = ended(api, answer.body["submission"])
    assert (done["state"], done["id"]) == ("failed", None)
    assert "unknown model 'absent'" in "\n".join(done["log"])
    folder = tmp_path / "home" / "portal" / "submissions" / answer.body["submission"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "log").stat().st_mode) == 0o600


def test_the_command_is_a_list_of_words_in_the_folder_of_the_plans(
    serve: Serve, plans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of a hostile name, and a stand-in for hpcbench that says what it was called with."""
    monkeypatch.setattr("hpcbench.portal.user_commands._START", SPY)
    monkeypatch.setattr(
        "hpcbench.portal.user_commands.started_with",
        lambda: {"PATH": "/usr/bin", "MY_TOKEN": "s3cr3t!"},
    )
    hostile = "-x; touch owned; $(id) 'a\".yaml"
    (plans / hostile).write_text(PLAN + "# ${env:MY_TOKEN}\n")
    api = serve(may_submit=True)
    definition = opened(api, hostile.removesuffix(".yaml"))
    body = {"definition": definition["row"]["id"], "etag": definition["etag"]}
    answer = api.ask("POST", "submissions", body)
    done = ended(api, answer.body["submission"])
    assert (done["state"], done["id"]) == ("done", "20261122-1200-small-abcd")
    said = json.loads(done["log"][0])
    assert said == {
        "argv": ["submit", f"./{hostile}"], "cwd": str(plans), "umask": "0o27", "token": "***",
        "threads": None,
    }  # fmt: skip
    assert done["log"][1] == "no red, no title"
    assert not (plans / "owned").exists()


SPY = """
import json, os, sys
from pathlib import Path
folder = Path(sys.argv[1])
mask = os.umask(0); os.umask(mask)
print(json.dumps({"argv": sys.argv[2:], "cwd": os.getcwd(), "umask": oct(mask),
                  "token": os.environ["MY_TOKEN"], "threads": os.environ.get("OMP_NUM_THREADS")}))
print("\\x1b[31mno red\\x1b[0m\\x1b]0;title\\x07, no title")
print("submitted 20261122-1200-small-abcd (g0 1)")
sys.stdout.flush()
while (folder / "held").exists():
    pass
(folder / "code").write_text("0")
"""


def test_a_plan_is_submitted_once_at_a_time_and_only_as_it_was_seen(
    serve: Serve, plans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = plans.parent / "waiting"
    waiting.touch()
    held = SPY.replace('(folder / "held")', f"Path({str(waiting)!r})")
    monkeypatch.setattr("hpcbench.portal.user_commands._START", held)
    monkeypatch.setattr(
        "hpcbench.portal.user_commands.started_with", lambda: {"MY_TOKEN": "abcd1234"}
    )
    api = serve(may_submit=True)
    definition = opened(api)
    body = {"definition": definition["row"]["id"], "etag": definition["etag"]}
    first = api.ask("POST", "submissions", body)
    assert first.status == 202
    again = api.ask("POST", "submissions", body)
    assert (again.status, again.body["code"]) == (409, "conflict")
    waiting.unlink()
    assert ended(api, first.body["submission"])["state"] == "done"
    (plans / "small.yaml").write_text(PLAN + "# changed\n")
    stale = api.ask("POST", "submissions", body)
    assert (stale.status, stale.body["code"]) == (412, "conflict")
    for bad in ("..", "0" * 16, "x/../y"):
        assert api.ask("GET", f"submissions/{bad}").status == 404


# --- actions ------------------------------------------------------------------------------------------------


def act(api: Unguarded, experiment: str, action: str) -> Answer:
    return api.ask("POST", "submissions/actions", {"experiment": experiment, "action": action})


def test_no_action_runs_without_the_permission_or_for_nothing(serve: Serve, tmp_path: Path) -> None:
    experiment = scored(tmp_path / "home", [{"anls": 1.0}], ("anls",))
    refused = act(serve(), experiment.id, "cancel")
    assert (refused.status, refused.body["code"]) == (403, "refused")
    assert "--allow-submit" in refused.body["remedy"]
    api = serve(may_submit=True)
    assert act(api, "20200101-0000-none-aaaa", "cancel").status == 404
    assert act(api, "../../etc", "cancel").status == 404
    assert act(api, experiment.id, "gc").status == 422


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "score"])
def test_an_action_is_a_verb_of_hpcbench_for_exactly_this_experiment(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr("hpcbench.portal.user_commands._START", SPY)
    monkeypatch.setattr("hpcbench.portal.user_commands.started_with", lambda: {"MY_TOKEN": "x"})
    experiment = scored(tmp_path / "home", [{"anls": 1.0}], ("anls",))
    api = serve(may_submit=True)
    answer = act(api, experiment.id, action)
    assert (answer.status, answer.body["verb"], answer.body["name"]) == (202, action, experiment.id)
    done = ended(api, answer.body["submission"])
    assert json.loads(done["log"][0])["argv"] == [action, str(experiment.path)]
    assert (done["state"], done["definition"], done["id"]) == ("done", None, None)


def test_an_experiment_is_scored_from_the_page(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real command, whose refusal the page shows: the experiment has scores, but no dataset."""
    monkeypatch.setattr("hpcbench.portal.user_commands.started_with", lambda: dict(os.environ))
    experiment = scored(tmp_path / "home", [{"anls": 1.0}], ("anls",))
    api = serve(may_submit=True)
    done = ended(api, act(api, experiment.id, "pause").body["submission"])
    assert done["log"], done
    assert "Traceback" not in "\n".join(done["log"])
