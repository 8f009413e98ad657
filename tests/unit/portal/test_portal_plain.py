"""Pages without scripts: what a text browser does, from the code to the run tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest

from hpcbench.portal.context import Options
from hpcbench.portal.index import BadCursor, ExperimentQuery, RunTaskQuery
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import ExperimentRow, RunTaskRow, Score
from tests.unit.portal.served import Answer, Served, served

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}"


class _Index:
    """An index of one experiment with hostile names."""

    row = ExperimentRow(
        id="exp-1", plan=HOSTILE, state="running", created=1_800_000_000, updated=0, owner="me",
        models=("m",), datasets=("d",), run_tasks=1, tasks_by_state={"running": 1}, samples=4, answered=3,
        eta=HOSTILE, score=Score(metric="anls", value=0.5, low=0.4, high=0.6, n=3), failures=2,
    )  # fmt: skip
    task = RunTaskRow(
        experiment="exp-1", name=HOSTILE, ml_task="vqa", model=HOSTILE, dataset="d", prompt="p",
        state="stopped", reason=HOSTILE, samples=4, answered=3,
    )  # fmt: skip

    def experiments(self, query: ExperimentQuery) -> Page[ExperimentRow]:
        if query.after == "wrong":
            raise BadCursor
        return Page(items=(self.row,), next="a&b=<c>", total=10_000)

    def experiment(self, identity: str) -> ExperimentRow | None:
        return self.row if identity == "exp-1" else None

    def run_tasks(self, query: RunTaskQuery) -> Page[RunTaskRow]:
        assert query.experiment == "exp-1"
        return Page(items=(self.task,), next=None, total=1)

    def version(self, experiment: str | None = None) -> int:
        return 1


@pytest.fixture(scope="module", params=["", "/node/n1/80"])
def portal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("plain")
    options = Options(folder, root_path=request.param)
    with served(folder, index=_Index(), options=options) as portal:
        yield portal


def prefix(portal: Served) -> str:
    return portal.portal.options.root_path


def post(portal: Served, path: str, jar: dict[str, str], **fields: str) -> Answer:
    """As lynx sends a form: no Origin, no Sec-Fetch-Site, no header of ours."""
    given = {"Content-Type": "application/x-www-form-urlencoded"}
    if jar:
        given["Cookie"] = "; ".join(f"{name}={value}" for name, value in jar.items())
    return portal.ask("POST", prefix(portal) + path, given, urlencode(fields).encode())


def signed_in(portal: Served) -> dict[str, str]:
    found = post(portal, "/plain/login", {}, code=portal.access.desk.sessions.code())
    assert (found.status, found.header("location")) == (303, "../plain")
    return found.cookies


def get(portal: Served, path: str, jar: dict[str, str]) -> Answer:
    cookie = "; ".join(f"{name}={value}" for name, value in jar.items())
    return portal.ask("GET", prefix(portal) + path, {"Cookie": cookie})


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_whole_way_without_a_script(portal: Served) -> None:
    assert portal.ask("GET", f"{prefix(portal)}/plain").header("location") == "plain/login"
    deep = portal.ask("GET", f"{prefix(portal)}/plain/exp-1")
    assert deep.header("location") == "../plain/login"
    form = portal.ask("GET", f"{prefix(portal)}/plain/login")
    assert b'method="post" action="login"' in form.body
    jar = signed_in(portal)
    page = get(portal, "/plain", jar).body.decode()
    assert 'href="plain/exp-1"' in page
    assert "[###############.....]  75 %" in page
    assert "anls 0.500 [0.400, 0.600] n=3" in page
    assert "1 of 10000 or more" in page
    detail = get(portal, "/plain/exp-1", jar)
    assert detail.status == 200
    assert "running: 3 of 4 samples done" in detail.body.decode()
    assert get(portal, "/plain/exp-2", jar).status == 404
    assert get(portal, "/plain?after=wrong", jar).status == 400


def test_the_whole_link_may_be_pasted(portal: Served) -> None:
    code = portal.access.desk.sessions.code()
    link = f" http://n1.localhost:8787/#t={code} "
    assert post(portal, "/plain/login", {}, code=link).status == 303


def test_the_cookie_opens_nothing_but_these_pages(portal: Served) -> None:
    found = post(portal, "/plain/login", {}, code=portal.access.desk.sessions.code())
    (cookie,) = (value for name, value in found.headers if name == "set-cookie")
    assert re.sub("=[^;]*;", "=…;", cookie, count=1).endswith(
        f"-plain=…; HttpOnly; Path={prefix(portal)}/plain; SameSite=strict"
    )
    ((name, value),) = found.cookies.items()
    assert get(portal, "/api/v1/session", {name: value}).status == 401
    disguised = {portal.access.desk.access_cookie: value}
    assert get(portal, "/api/v1/session", disguised).status == 403


def test_a_wrong_code_gets_the_form_again(portal: Served) -> None:
    found = post(portal, "/plain/login", {}, code="x")
    assert found.status == 401
    assert "used already, or is too old" in found.body.decode()
    assert not found.cookies


def test_a_form_of_another_site_is_refused(portal: Served) -> None:
    for given in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        found = portal.ask("POST", f"{prefix(portal)}/plain/login", given, b"code=x")
        assert found.status == 403
    own = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}
    code = portal.access.desk.sessions.code()
    found = portal.ask("POST", f"{prefix(portal)}/plain/login", own, f"code={code}".encode())
    assert found.status == 303, "a browser's own form: its page tells no referrer"


def test_signing_out_ends_it(portal: Served) -> None:
    jar = signed_in(portal)
    found = post(portal, "/plain/logout", jar)
    assert (found.status, found.header("location")) == (303, "login")
    assert get(portal, "/plain", jar).status == 303


@pytest.mark.parametrize("path", ["/plain", "/plain/exp-1"])
def test_hostile_names_are_text(portal: Served, path: str) -> None:
    found = get(portal, path, signed_in(portal))
    text = found.body.decode()
    tags = _Tags(text).found
    assert {"script", "img", "iframe", "object"}.isdisjoint(tag for tag, _ in tags)
    assert not [name for _, given in tags for name in given if name.startswith("on")]
    assert "&lt;script&gt;" in text
    assert "{{ 7*7 }}" in text, "names are no templates"
    for _, given in tags:
        for name in ("href", "action", "src"):
            assert not re.match(r"\w+:|//|/", given.get(name) or ""), (
                "relative: right under any prefix"
            )


def test_a_list_goes_on_where_it_ended(portal: Served) -> None:
    page = get(portal, "/plain", signed_in(portal)).body.decode()
    assert 'href="?after=a%26b%3D%3Cc%3E"' in page


def test_no_method_but_these(portal: Served) -> None:
    jar = signed_in(portal)
    assert post(portal, "/plain", jar).status in {403, 405}
    assert post(portal, "/plain/exp-1", jar).status == 405


def test_the_pages_lie_in_the_package() -> None:
    import hpcbench.portal

    folder = Path(hpcbench.portal.__file__).parent / "pages"
    assert sorted(path.name for path in folder.glob("*.html")) == [
        "experiment.html", "experiments.html", "frame.html", "login.html",
    ]  # fmt: skip
