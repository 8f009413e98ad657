"""A static bundle: what the API answers, under names that every file server takes, whole or not at all."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.layout import Experiment
from hpcbench.portal import packs, static_export
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.index import open_index
from hpcbench.portal.packs import Kind, Packs
from hpcbench.portal.static_export import KEPT, Wanted, name_of, quoted, write
from tests.unit.portal.unguarded import unguarded
from tests.unit.reporting.many import answered, right

KINDS: tuple[Kind, ...] = ("answers", "thumbs", "images")

PAGE = "<!doctype html>\n<html><head>\n<title>x</title></head><body></body></html>\n"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """Two run tasks; some answers are hostile."""
    answers = ["<script>alert(1)</script>", *right(12, 0.6)[1:]]
    here = answered(tmp_path_factory.mktemp("home"), {"a": answers, "b": right(12, 0.9)})
    (here.report_dir).mkdir()
    (here.report_dir / "report.html").write_text("<p>report")
    (here.report_dir / "secret.key").write_text("not for anybody")
    here.workers_dir.mkdir(exist_ok=True)
    (here.workers_dir / "g0.1_0-0.log").write_text("one\ntwo\n")
    return here


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client, as it would be built."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "assets").mkdir()
    (folder / "index.html").write_text(PAGE)
    (folder / "assets" / "a.js").write_text("0")
    return folder


@pytest.fixture(scope="module")
def written(experiment: Experiment, client: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with everything but images."""
    out = tmp_path_factory.mktemp("out") / "bundle"
    found = write(experiment, out, Wanted(logs=True), client=client)
    assert found.files == sum(path.is_file() for path in out.rglob("*"))
    return out


def answers(out: Path) -> dict[str, bytes]:
    """Every answer of a bundle by its name, as the client finds it."""
    index = json.loads((out / "data/index.json").read_text())
    found = dict[str, bytes]()
    for number in range(index["names"]):
        names = json.loads((out / f"data/names/{number}.json").read_text())
        for name, (pack, begin, size) in names.items():
            assert zlib.crc32(name.encode()) % index["names"] == number
            found[name] = (out / "data/packs" / pack).read_bytes()[begin : begin + size]
            assert len(found[name]) == size
    return found


def read(out: Path, *path: str, **query: str) -> Any:
    return json.loads(answers(out)[name_of(path, query)])


# --- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "query", "name"),
    [
        ("experiments/E/run-tasks", {}, "experiments/E/run-tasks"),
        ("experiments/E/run-tasks", {"after": "2", "limit": "50"},
         "experiments/E/run-tasks?after=2"),
        ("experiments/E/figures/tokens", {"theme": "dark", "after": "2"},
         "experiments/E/figures/tokens?after=2&theme=dark"),
        ("e/E/samples", {"wrong": "false"}, "e/E/samples"),
        ("e/s/7/images/0", {"size": "thumb"}, "e/s/7/images/0?size=thumb"),
        ("a b/ü/.x", {}, "a b/ü/.x"),
    ],
)  # fmt: skip
def test_a_request_has_its_answer(path: str, query: dict[str, str], name: str) -> None:
    assert name_of(path.split("/"), query) == name


@given(st.text(), st.text())
def test_names_are_plain_and_no_two_texts_have_the_same(one: str, other: str) -> None:
    for text in (one, other):
        name = quoted(text)
        assert name.isascii()
        assert not set(name) & set("/\\%?#&:*<>|\" '")
        assert not name.startswith(".")
    assert (quoted(one) == quoted(other)) == (one == other)


@given(
    st.lists(
        st.tuples(st.text(min_size=1), st.binary(max_size=300), st.sampled_from(KINDS)),
        unique_by=lambda one: one[0],
    ),
    st.integers(1, 500),
)
def test_packs_give_back_what_was_kept(kept: list[tuple[str, bytes, Kind]], full: int) -> None:
    files = dict[str, bytes]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "PACK_BYTES", full)
        patch.setattr(packs, "NAMES", 3)
        writing = Packs(files.__setitem__)
        for one in kept:
            writing.add(*one)
        count = writing.close()
    found = {
        name: files[f"data/packs/{pack}"][begin : begin + size]
        for number in range(count)
        for name, (pack, begin, size) in json.loads(files[f"data/names/{number}.json"]).items()
    }
    assert found == {name: data for name, data, _ in kept}
    for name, data in files.items():
        if name.startswith("data/packs/"):
            assert 0 <= len(data) <= max(full, *(len(one) for _, one, _ in kept))
    assert len(set(files)) == len(files)


def test_the_same_content_is_kept_once_and_the_same_name_is_refused() -> None:
    files = dict[str, bytes]()
    writing = Packs(files.__setitem__)
    for number in range(5):
        writing.add(f"page {number}", b"the same page", "images")
    with pytest.raises(ValueError, match="two answers"):
        writing.add("page 0", b"another")
    writing.close()
    assert [data for name, data in files.items() if "packs" in name] == [b"the same page"]


# --- what is in it --------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_bundle_says_what_it_is_and_its_page_that_it_is_one(
    written: Path, experiment: Experiment
) -> None:
    reported = json.loads((written / "data/index.json").read_text())
    assert (reported["version"], reported["experiment"]) == (2, experiment.id)
    assert reported["kept"] == list(KEPT)
    page = (written / "index.html").read_text()
    head = page.partition("</head>")[0]
    assert '<meta name="hpcbench-bundle" content="data/index.json">' in head
    assert head.index("Content-Security-Policy") < head.index("<title>")
    assert "default-src 'none'" in head
    assert (written / "assets/a.js").read_text() == "0"


def test_it_does_not_say_who_made_it(written: Path) -> None:
    session = read(written, "session")
    assert (session["user"], session["may_edit"], session["may_submit"]) == ("", False, False)


def test_it_holds_what_a_portal_answers(
    written: Path, experiment: Experiment, tmp_path: Path
) -> None:
    home = experiment.path.parent.parent
    index = open_index(f"sqlite:///{tmp_path}/index.sqlite", home)
    static_export._enter(index, experiment)
    below = f"experiments/{experiment.id}"
    asked = [
        f"{below}/run-tasks/a", f"{below}/run-tasks", f"{below}/provenance", f"{below}/figures",
        f"{below}/run-tasks/a/samples", f"{below}/run-tasks/b/samples/3", f"{below}/resources",
        f"{below}/run-tasks/a/samples/facets", f"{below}/logs",
        f"{below}/logs/workers.g0.1_0-0.log",
    ]  # fmt: skip
    with unguarded(Portal(home, Options(plans=tmp_path), index, Hub())) as api:
        for path in asked:
            answer = api.ask("GET", path)
            assert answer.status == 200, path
            assert read(written, *path.split("/")) == answer.body, path
        figures = api.ask("GET", f"{below}/figures").body
        for one in figures:
            path = f"{below}/figures/{one['name']}"
            reported = api.ask("GET", f"{path}?theme=dark").body
            assert read(written, *path.split("/"), theme="dark") == reported
    index.close()


def test_samples_are_there_one_by_one_and_the_wrong_ones_by_themselves(
    written: Path, experiment: Experiment
) -> None:
    path = ("experiments", experiment.id, "run-tasks", "a", "samples")
    every = read(written, *path)["items"]
    wrong = read(written, *path, wrong="true")["items"]
    assert len(every) == 12
    assert 0 < len(wrong) < 12
    for row in wrong:
        assert read(written, *path, str(row["place"]), wrong="true")["row"]["place"] == row["place"]


def test_a_run_task_has_the_logs_of_its_own(written: Path, experiment: Experiment) -> None:
    path = ("experiments", experiment.id, "logs")
    known = {one["id"] for one in read(written, *path)}
    assert {one["id"] for one in read(written, *path, run_task="a")} <= known


def test_hostile_answers_are_data(written: Path) -> None:
    holding = [
        path for path in written.rglob("*") if path.is_file() and b"<script>" in path.read_bytes()
    ]
    assert holding
    assert {path.parent.name for path in holding} == {"packs"}
    assert {path.suffix for path in holding} == {""}, "no server takes it for a page"


def test_of_the_report_only_what_may_be_fetched_is_there(
    written: Path, experiment: Experiment
) -> None:
    folder = written / "report"
    assert [path.name for path in folder.iterdir()] == ["report.html"]


@pytest.mark.long
def test_pages_of_a_long_list_follow_each_other_by_number(
    experiment: Experiment, client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = static_export.Recorder.ask

    async def five(self: static_export.Recorder, path: Any, **query: str) -> Any:
        return await asked(self, path, **{**query, **({"limit": "5"} if "limit" in query else {})})

    monkeypatch.setattr(static_export.Recorder, "ask", five)
    write(experiment, tmp_path / "out", client=client)
    path = ("experiments", experiment.id, "run-tasks", "a", "samples")
    first = read(tmp_path / "out", *path)
    assert (first["next"], len(first["items"])) == ("2", 5)
    second = read(tmp_path / "out", *path, after="2")
    third = read(tmp_path / "out", *path, after=second["next"])
    places = [row["place"] for page in (first, second, third) for row in page["items"]]
    assert (places, third["next"]) == (list(range(12)), None)


def test_what_is_not_wanted_is_not_there(
    experiment: Experiment, client: Path, tmp_path: Path
) -> None:
    write(experiment, tmp_path / "out", Wanted(samples=2), client=client)
    below = ("experiments", experiment.id)
    assert read(tmp_path / "out", *below, "logs") == []
    assert read(tmp_path / "out", *below, "logs", run_task="b") == []
    samples = "/".join((*below, "run-tasks", "b", "samples"))
    there = set(answers(tmp_path / "out"))
    assert {f"{samples}/0", f"{samples}/1"} <= there
    assert f"{samples}/2" not in there


# --- how it is written ----------------------------------------------------------------------------------


@pytest.mark.long
def test_an_archive_holds_the_same_files(
    written: Path, experiment: Experiment, client: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bundle.zip"
    write(experiment, out, Wanted(logs=True), client=client)
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
    assert names == {
        path.relative_to(written).as_posix() for path in written.rglob("*") if path.is_file()
    }


def test_what_is_there_already_is_left_alone(
    experiment: Experiment, client: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("mine")
    for out in (tmp_path, tmp_path / "mine"):
        with pytest.raises(UserError, match="exists already"):
            write(experiment, out, client=client)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_bundle_that_fails_leaves_nothing_behind(
    experiment: Experiment, client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(static_export, "_run_task", full)
    for name in ("out", "out.zip"):
        with pytest.raises(OSError, match="no space"):
            write(experiment, tmp_path / "a" / name, client=client)
    assert list((tmp_path / "a").iterdir()) == []


def test_without_a_client_it_says_how_to_get_one(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="not built"):
        write(experiment, tmp_path / "out", client=tmp_path)


def test_what_cannot_be_had_is_reported(
    experiment: Experiment, client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_export, "THEMES", ("light", "no such theme"))
    found = write(experiment, tmp_path / "out", client=client)
    assert any("figures/" in line and "theme" in line for line in found.left_out)
    reported = json.loads((tmp_path / "out/data/index.json").read_text())
    assert reported["left_out"] == found.left_out
