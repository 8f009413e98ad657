"""The docs say what is there: rooms, verbs, fields."""

from __future__ import annotations

import ast
import importlib
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest
import yaml

import hpcbench
from hpcbench.cli.main import main
from hpcbench.cli.parse import parser
from hpcbench.comparison.gate import verdict
from hpcbench.engines.auto_concurrency import ELSEWHERE, ON_CPUS, ON_GPUS
from hpcbench.experiment import answer_index, layout, outcome
from hpcbench.experiment.view import scores
from hpcbench.experiment.view.metrics_json import METRICS_VERSION
from hpcbench.experiment.view.performance_json import PERFORMANCE_VERSION
from hpcbench.inference.adaptive import Adaptive
from hpcbench.planning import WORTH_SPARING
from hpcbench.plugins import REQUIRED
from hpcbench.registry.catalog import load_definition
from hpcbench.registry.source import read, validate
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.plan import Fewer
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site
from hpcbench.status import ExperimentStatus
from hpcbench.submit.estimate import spared
from hpcbench.testing import check
from tests.conftest import ROOT
from tests.pages import blocks
from tests.syntax import parsed
from tests.unit.command import Cli

PACKAGE = ROOT / "hpcbench"


def test_the_architecture_page_lists_exactly_the_rooms_there_are() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text[text.index("## Rooms") :]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    listed = {
        name.rstrip("/") for row in rows for name in re.findall(r"`([\w./]+)`", row.split("|")[1])
    }
    rooms = {
        path.name
        for path in PACKAGE.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists()) or path.suffix == ".py"
    }
    assert listed == rooms - {"__init__.py"}


@pytest.mark.long
def test_the_walks_of_the_architecture_page_lead_through_code_that_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    steps = re.findall(
        r"^ +(\w[\w/]*\.py) +(\w+) ", text[text.index("## Two walks") :], re.MULTILINE
    )
    assert len({module for module, _ in steps}) > 30
    first, second = re.findall(r"```text\n(.*?)```", text[text.index("## Two walks") :], re.DOTALL)[
        :2
    ]
    modules = [
        len({*re.findall(r"^ +(\w[\w/]*\.py) ", walk, re.MULTILINE)}) for walk in (first, second)
    ]
    counted = re.search(r"has (\d+) modules; .* The second has (\d+)\.", text)
    assert counted and [*map(int, counted.groups())] == modules, (
        "a longer walk is a reason to think"
    )
    for module, name in steps:
        tree = parsed((PACKAGE / module).read_text(encoding="utf-8"))
        assert name in {getattr(node, "name", None) for node in ast.walk(tree)}, (module, name)


def test_the_status_page_names_every_field_of_status_json() -> None:
    text = (ROOT / "docs" / "status.md").read_text()
    for field in ExperimentStatus.__dataclass_fields__:
        assert re.search(rf"`{field}(\[\])?`", text), field


def test_the_list_of_files_names_every_file_of_an_experiment() -> None:
    source = (PACKAGE / "experiment/layout.py").read_text(encoding="utf-8")
    names = re.findall(r'self\.(?:path|\w+_dir) / "([\w.]+)"', source)
    assert len(names) > 25
    listed = str(layout.__doc__)
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}", listed)] == []


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_table_has_a_head_and_rows_of_equal_length(page: Path) -> None:
    """A blank line within a table would end it: the rows below it would be shown as text."""
    text = re.sub(
        r"```.*?```|`[^`\n]*`|\\\|", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, *rows = table.splitlines()
        assert rows and re.fullmatch(r"\|(?: ?:?-+:? ?\|)+", rows[0]), head
        assert {row.count("|") for row in rows} == {head.count("|")}, head


def test_the_commands_for_contributors_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    reported = set(re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", text, re.MULTILINE))
    targets = {one or other for one, other in reported}
    assert {"lint", "test", "test-quick", "test-full", "cluster-up"} <= targets
    for target in targets:
        assert re.search(rf"^(\.PHONY:.* )?{target}(:| )", makefile, re.MULTILINE), target
    for path in re.findall(r"tests/[\w/]+\.py", text):
        assert (ROOT / path).exists(), path
    (name,) = re.findall(r"-k (\w+)", text)
    assert re.search(
        rf"^def test_\w*{name}", (ROOT / "tests/slurm/test_reliability.py").read_text(), re.M
    )


@pytest.mark.parametrize(
    ("page", "model"), [("README.md", ExperimentPlan), ("docs/cluster-guide.md", Site)]
)
def test_the_definitions_shown_are_valid_unchanged(
    tmp_path: Path, page: str, model: type[ExperimentPlan] | type[Site]
) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    path = tmp_path / "shown.yaml"
    path.write_text(textwrap.dedent(block))
    validate(model, read(path))


def test_every_command_of_readme_tutorial_and_how_to_runs_or_says_why_not() -> None:
    """`tests/demo` and `tests/slurm` run what is not marked; nothing runs the README's blocks."""
    pages = [*(ROOT / "docs").glob("tutorial*.md"), *(ROOT / "docs/how-to").glob("*.md")]
    assert len(pages) >= 9
    for page in (ROOT / "README.md", *pages):
        for block in blocks(page):
            assert block.note in ("", "not run", "when", "jobs", "exit", "env", "after", "with"), (
                page
            )
            assert len(block.value) > 3 or block.note in ("", "exit"), (page, block)
    readme = [block for block in blocks(ROOT / "README.md") if block.language == "sh"]
    assert [block.note for block in readme] == ["not run"] * len(readme)
    assert "docs/pictures/sample.png" in (text := (ROOT / "README.md").read_text())
    assert "docs/pictures/report.png" in text


def test_every_picture_is_one_that_the_script_takes_of_the_demo() -> None:
    script = (ROOT / "recipes/pictures.py").read_text(encoding="utf-8")
    taken = set(re.findall(r'yield "([\w-]+)"|"([\w-]+)\.png"', script))
    shown = {
        Path(picture).stem
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == {one or other for one, other in taken}
    assert shown == {path.stem for path in (ROOT / "docs/pictures").iterdir()}


def guides() -> list[Path]:
    """Pages of the site's first three tabs that no test types through: those beside tutorial and how-to."""
    lines = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    tabs = {name: entry for tab in yaml.safe_load(lines) for name, entry in tab.items()}
    named = re.findall(r"'([\w/-]+\.md)'", str([tabs["Home"], tabs["Tutorial"], tabs["How-to"]]))
    typed = re.compile(r"(?:ru/)?tutorial|how-to/")
    return [ROOT / "docs" / name for name in named if not typed.match(name)]


@pytest.mark.parametrize(
    "page", [*guides(), ROOT / "docs/for-admins.md"], ids=lambda page: page.name
)
def test_a_block_of_another_guide_names_its_test_or_says_why_it_does_not_run(page: Path) -> None:
    assert len(guides()) >= 8
    for block in blocks(page):
        assert block.note in ("tested", "not run"), (page.name, block.text)
        if block.note == "tested":
            assert page.name in (ROOT / block.value).read_text(encoding="utf-8"), block.text


def test_the_first_plan_of_the_page_what_to_set_is_written_and_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (block,) = (one for one in blocks(ROOT / "docs/what-to-set.md") if one.language == "sh")
    cli(*(block.text.split()[1:]))
    (written,) = tmp_path.glob("*.yaml")
    assert main(["validate", written.name]) == 0


def test_the_verbs_of_the_readme_are_those_there_are() -> None:
    (verbs,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    used = set(re.findall(r"^hpcbench (\w+)", "\n".join(blocks), re.MULTILINE))
    assert used
    assert used <= set(verbs)
    table = (ROOT / "README.md").read_text().partition("## Commands")[2].partition("## How")[0]
    assert {name for name in re.findall(r"`([a-z]+)`", table)} == set(verbs) - {"remote"}


def test_the_page_what_to_set_has_the_numbers_of_the_code() -> None:
    text = (ROOT / "docs/what-to-set.md").read_text()
    assert f"with GPUs | {ON_GPUS} |" in text
    assert f"the same on CPUs | {ON_CPUS} |" in text
    assert (
        f"`remote` | up to {ELSEWHERE}: each worker begins with {Adaptive(ELSEWHERE).limit} "
        in text
    )
    assert f"less than {WORTH_SPARING / 60:.0f} minutes of loading" in text
    reported = Fewer("my-qwen", 1, 8, 80, 64, 180, 120, True)
    assert list(spared([reported])) == re.findall(r"```text\n(.*)\n```", text)
    rules = text[text.index("| key |") : text.index("## Concurrency")]
    named = re.findall(r"^\| `(\w+)`(?:, `(\w+)`)? \| (?:plan|run task) \|", rules, re.MULTILINE)
    keys = {*ExperimentPlan.model_fields, *RunTask.model_fields}
    assert len(named) >= 5
    assert {key for pair in named for key in pair if key} <= keys


def shown_definitions() -> list[tuple[str, str, str]]:
    """Page, `KIND/NAME` and text of every definition that a page shows under its path."""
    found = []
    for page in ("registries.md", "plugins.md", "data.md", "own-modules.md", "what-to-set.md"):
        text = (ROOT / "docs" / page).read_text()
        for name, body in re.findall(r"```yaml\n# (\w+/\S+)\.yaml\n(.*?)```", text, re.DOTALL):
            found.append((page, name, body))
    return found


@pytest.mark.parametrize(("page", "name", "body"), shown_definitions())
def test_a_definition_shown_under_its_path_is_one(
    tmp_path: Path, page: str, name: str, body: str
) -> None:
    kind, _, short = name.partition("/")  # the rest of a path is the name
    path = tmp_path / f"{name}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(body)
    assert load_definition(KINDS[kind], path)[0].name == short


def test_the_metric_of_the_plugins_page_keeps_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/plugins.md").read_text(), re.DOTALL)
    (tmp_path / "amount.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    check("metrics", importlib.import_module("amount").SameDigits, tmp_path / "room")


def test_the_plugins_page_has_every_kind_with_its_example() -> None:
    text = (ROOT / "docs/plugins.md").read_text()
    for kind in REQUIRED:
        assert f"| `{kind}` |" in text
    examples = {path.name for path in (ROOT / "examples/plugins").iterdir()}
    assert examples == set(re.findall(r"examples/plugins/([\w-]+)\)", text))


def test_the_commands_of_the_registries_page_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/registries.md").read_text(), re.DOTALL)
    commands = [line.split()[1:] for block in blocks for line in block.splitlines()]
    ran = 0
    for arguments in commands:
        if arguments[0] == "registry":
            assert main(arguments) in (0, 1)
            assert capsys.readouterr().out
            ran += 1
    assert ran >= 4


@pytest.mark.parametrize(
    ("english", "russian"),
    [
        ("README.md", "README.ru.md"),
        *(
            (f"docs/{page.name}", f"docs/ru/{page.name}")
            for page in (ROOT / "docs/ru").glob("*.md")
        ),
    ],
)
def test_a_translation_shows_the_same_commands_and_output(english: str, russian: str) -> None:
    shown = [
        re.findall(r"```\w*\n.*?```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
        for page in (english, russian)
    ]
    assert shown[0]
    assert shown[0] == shown[1]
    assert outline(english) == outline(russian)


def outline(page: str) -> tuple[list[str], list[int], set[str]]:
    """Levels of headings, cells of the tables' rows, and the pages that it links to, in either language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    links = {
        re.sub(r"^(?:\.\./)*(?:docs/)?(?:ru/)?|\.ru(?=\.md)", "", link)
        for link in re.findall(r"\]\(([^)#]+)", prose)
    }
    return (
        re.findall(r"^#+", prose, re.MULTILINE),
        [row.count("|") for row in re.findall(r"^\|.*", prose, re.MULTILINE)],
        links - {"README.md", Path(page).name},
    )


def test_each_part_of_the_tutorial_is_there_in_russian() -> None:
    parts = {page.name for page in (ROOT / "docs").glob("tutorial*.md")}
    assert len(parts) == 3
    assert parts == {page.name for page in (ROOT / "docs/ru").glob("*.md")}


def test_the_readme_is_read_in_a_minute() -> None:
    for page in ("README.md", "README.ru.md"):
        assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= 120


def texts(constants: Iterable[object]) -> Iterator[str]:
    """Texts among the constants of a program, and of all functions and classes in it."""
    for one in constants:
        if isinstance(one, str):
            yield one
        elif isinstance(one, CodeType):
            yield from texts(one.co_consts)
        elif isinstance(one, tuple | frozenset):
            yield from texts(one)


@pytest.mark.long
def test_the_troubleshooting_page_quotes_messages_that_there_are() -> None:
    # As Python compiled them before: to parse all sources takes seconds.
    programs = [SourceFileLoader("", str(path)).get_code("") for path in PACKAGE.rglob("*.py")]
    said = "\n".join(texts(programs))
    quoted = re.findall(
        r"^\| `(.*?)` \|", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE
    )
    assert len(quoted) > 40
    for message in quoted:
        for fragment in message.split("…"):
            assert fragment.strip(" '()") in said, message


def test_the_tutorial_shows_the_questions_of_data_add() -> None:
    """Its other output is compared in a run without a terminal, which asks nothing."""
    page = (ROOT / "docs/tutorial-own-data.md").read_text()
    asked = re.findall(r"^([A-Z][^\n\[]*) \[[^\n]*\]:$", page, re.MULTILINE)
    assert len(asked) == 3
    code = "".join((PACKAGE / f"cli/{name}.py").read_text() for name in ("questions", "data_add"))
    for question in asked:
        for part in question.split(", "):
            assert part in code, question


def test_the_changelog_begins_with_what_is_not_released_and_the_version_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"hpcbench {hpcbench.__version__}\n"
    declared = re.findall(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared == [hpcbench.__version__]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)", changelog, re.MULTILINE)[:2] == [
        "Unreleased",
        hpcbench.__version__,
    ]
    highlights = changelog.partition("### Highlights")[2].partition("###")[0]
    assert 3 < len(re.findall(r"^- ", highlights, re.MULTILINE)) <= 10


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_figures_of_a_benchmark_have_a_day(page: Path) -> None:
    """A section that names a benchmark and its figures says when they were measured."""
    text = page.read_text(encoding="utf-8")
    for part in re.split(r"^#{1,6} ", text, flags=re.MULTILINE):
        measured = re.search(r"`benchmarks/\w+\.py", part) and re.search(
            r"\d (?:ms|s|µs|MB|MiB|GB|%)\b", part
        )
        if measured and "decisions" not in page.parts:
            assert re.search(r"\b20\d\d-\d\d-\d\d\b", part), part.partition("\n")[0]


def test_the_page_of_versions_has_those_of_the_files() -> None:
    page = (ROOT / "docs/versions.md").read_text()
    rows = dict(re.findall(r"^\| (.+?) \| (\d+) \|", page, re.MULTILINE))
    shown = {
        name: int(version) for row, version in rows.items() for name in re.findall(r"`(.+?)`", row)
    }
    schema = json.loads((ROOT / "registries/schemas/report.json").read_text())
    report_version = schema["properties"]["version"]["const"]
    assert shown == {
        "manifest.json": layout.MANIFEST_VERSION,
        "scores/*.parquet": scores.VERSION,
        "metrics.json": METRICS_VERSION,
        "performance.json": PERFORMANCE_VERSION,
        "report.json": report_version,
        "outcome.json": outcome.VERSION,
        "verdict.json": verdict.VERSION,
        "HOME/answers": answer_index.INDEX_VERSION,
    }
    status = ExperimentStatus.version
    assert f"have `version` ({status} today)" in page


def test_the_portals_rules_name_code_and_tests_that_exist() -> None:
    rules = (ROOT / "docs/portal-security.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in rules.splitlines() if re.match(r"\| \d+ \|", row)]
    assert len(rows) == 17
    portal = PACKAGE / "portal"
    for _, number, _, code, tests, _ in rows:
        for module, name in re.findall(r"`([a-z_]+)\.(\w+)`", code):
            (path, *_) = [
                one
                for one in (portal, portal.parent, portal.parent / "files")
                if (one / f"{module}.py").is_file()
            ]
            text = (path / f"{module}.py").read_text(encoding="utf-8")
            assert name == "py" or re.search(rf"(def|class) {name}\b", text), (number, module, name)
        for named in re.findall(r"(?:^|; )`([a-z_]+)`", tests.strip()):
            assert (ROOT / f"tests/unit/portal/test_portal_{named}.py").is_file(), (number, named)
