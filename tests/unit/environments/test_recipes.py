"""A Dockerfile becomes the same thing for Apptainer, or an error that says where and what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcbench.environments.recipes import Recipe, parse
from hpcbench.errors import UserError
from hpcbench.schema.image import Image
from hpcbench.schema.image_reference import Reference
from tests.conftest import ROOT
from tests.recipe_lint import lint

RECIPES = sorted(ROOT.glob("recipes/images/*/Dockerfile"))
SCORERS = sorted(ROOT.glob("recipes/scorers/*/Dockerfile"))
DIGEST = "sha256:" + "a" * 64
BUILD_ARGUMENT = re.compile(r"\{\{\s*\w+\s*\}\}")
"""Text that Apptainer would replace, in any section."""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str) -> Path:
        path = tmp_path / "Dockerfile"
        path.write_text(text)
        (tmp_path / "a.lock").write_text("x==1 --hash=sha256:0\n")
        (tmp_path / "b.txt").write_text("b")
        return path

    return _write


def section(recipe: Recipe, name: str) -> list[str]:
    text = recipe.definition({})
    match = re.search(rf"^%{name}\n((?:    .*\n)*)", text, re.MULTILINE)
    return [line.strip() for line in match[1].splitlines()] if match else []


def shell(lines: list[str], *arguments: str) -> str:
    """Output of /bin/sh for a section."""
    done = subprocess.run(
        ["/bin/sh", "-c", "\n".join(lines), "sh", *arguments],
        capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return done.stdout


def test_every_instruction_becomes_its_part_of_the_definition(write: Write) -> None:
    path = write(
        "# syntax=docker/dockerfile:1\n"
        "ARG BASE=debian:bookworm\n"
        "FROM ${BASE}\n"
        "ARG VENV=/opt/venv\n"
        'ENV PATH="${VENV}/bin:$PATH" \\\n'
        "    WORDS='two words'\n"
        "WORKDIR /work\n"
        "COPY a.lock b.txt ./in/\n"
        "RUN one \\\n"
        "    # a comment in between\n"
        "\n"
        "    && two\n"
        'RUN ["python3", "-c", "print(1)"]\n'
        'LABEL title="A title" other=b\n'
        'ENTRYPOINT ["serve"]\n'
        'CMD ["--port", "80"]\n'
    )
    recipe = parse(path)
    folder = path.parent
    assert (
        recipe.definition({"digest": "d"})
        == f"""\
Bootstrap: docker
From: docker.io/library/debian:bookworm

%files
    "{folder}/a.lock" /.recipe/0/a.lock
    "{folder}/b.txt" /.recipe/1/b.txt

%post
    set -e
    umask 022
    export VENV="/opt/venv"
    export PATH="${{VENV}}/bin:${{PATH}}" WORDS="two words"
    mkdir -p /work
    cd /work
    mkdir -p /work/in
    cp -p /.recipe/0/a.lock /work/in
    cp -p /.recipe/1/b.txt /work/in
    /bin/sh -c 'one     && two'
    python3 -c 'print(1)'
    rm -rf /.recipe

%environment
    export \\
        PATH="/opt/venv/bin:${{PATH}}" \\
        WORDS="two words"

%labels
    title A title
    other b
    digest d

%runscript
    cd /work
    if [ $# -eq 0 ]; then set -- --port 80; fi
    exec serve "$@"
"""
    )


def test_what_sets_nothing_has_no_sections(write: Write) -> None:
    recipe = parse(write("from quay.io/a/b:1 AS last"))
    assert recipe.definition({}) == "Bootstrap: docker\nFrom: quay.io/a/b:1\n"


def test_user_is_left_out(write: Write) -> None:
    whole = parse(write("FROM a/b:1\nUSER nobody\n")).definition({})
    assert whole == parse(write("FROM a/b:1\n")).definition({})


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", None, None, "no FROM"),
        ("ARG A\n", None, None, "no FROM"),
        ("RUN x\nFROM a", 1, 1, "RUN before FROM"),
        ("FROM a\n  ADD http://x /y", 2, 3, "cannot contain ADD (write COPY"),
        ("FROM a\nHEALTHCHECK NONE", 2, 1, "cannot contain HEALTHCHECK"),
        ("FROM a\nHELLO", 2, 1, "cannot contain HELLO (use only ARG"),
        ("FROM a\n&& b", 2, 1, "this line does not begin with an instruction"),
        ("# escape=`\nFROM a", 1, 1, "escape character"),
        ("FROM a\nRUN a\x0cb", 2, 6, "control character"),
        ("FROM a\nFROM b", 2, 1, "a second FROM"),
        ("FROM a extra", 1, 8, "one image"),
        ("FROM UPPER", 1, 6, "not an image reference"),
        ("FROM $BASE", 1, 6, "no value for $BASE"),
        ("FROM --platform=linux/arm64 a", 1, 6, "the option --platform"),
        ("FROM a\nRUN --mount=type=cache,target=/x y", 2, 5, "the option --mount"),
        ("FROM a\nCOPY --chown=me a.lock /", 2, 6, "the option --chown"),
        ("FROM a\nRUN cat <<EOF\nx\nEOF", 2, 9, "here-document"),
        ("FROM a\nRUN", 2, 1, "RUN has no arguments"),
        ("FROM a\nCOPY a.lock", 2, 6, "names no target"),
        ("FROM a\nCOPY a.lock \\\n # why\n  none /x/", 4, 3, "there is no file none"),
        ("FROM a\nCOPY . /x", 2, 6, "there is no file . (COPY takes files"),
        ("FROM a\nCOPY ../x /x", 2, 6, "outside the recipe's folder"),
        ("FROM a\nENV A=1 \\\n    B", 3, 5, "ENV without `=`"),
        ("FROM a\nENV A 1", 2, 5, "ENV without `=`"),
        ("FROM a\nENV 1A=1", 2, 5, "has no valid name"),
        ("FROM a\nENV A=${B:-c}", 2, 7, "modifier"),
        ('FROM a\nENV A="b', 2, 7, "quote that is not closed"),
        ("FROM a\nENV A=it's", 2, 9, "quote that is not closed"),
        ("FROM a\nWORKDIR /a b", 2, 12, "one folder"),
        ("FROM a\nWORKDIR $HOME", 2, 9, "no value for $HOME (give it a value by ARG"),
        ("FROM a\nLABEL a={{b}}", 2, 7, "{{"),
        ('FROM a\nRUN ["a\\nb"]', 2, 5, "control character"),
        ("FROM a\nCMD serve", 2, 1, "CMD alone"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_at_its_place(
    write: Write, text: str, line: int | None, column: int | None, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        parse(write(text))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (line, column), str(problem)
    assert message in str(problem)
    assert problem.remedy
    assert problem.file


def test_args_are_those_of_docker(write: Write) -> None:
    """Before FROM for FROM alone; a default may be taken over; ENV wins over a later ARG."""
    path = write(
        "ARG TAG=1\nARG SEEN=outer\nFROM a/b:$TAG\nARG SEEN\nARG NOT\nENV E=env\nARG E=arg\n"
        'RUN echo "$SEEN-$TAG-$E-$NOT"\n'
    )
    assert shell(section(parse(path), "post")) == "outer--env-\n"
    given_args = parse(path, {"TAG": "2", "SEEN": "mine", "NOT": "set"})
    assert given_args.base.tag == "2"
    assert shell(section(given_args, "post")) == "mine--env-set\n"
    with pytest.raises(UserError, match=r"no ARG TYPO .*E, NOT, SEEN, TAG"):
        parse(path, {"TYPO": "1"})


def test_env_sees_what_was_before_its_instruction(write: Write) -> None:
    path = write("FROM a\nENV A=1\nENV A=2 B=$A\nENV PATH=/x:$PATH\nENV PATH=/y:$PATH C=$A\n")
    lines = [*section(parse(path), "environment"), 'echo "$A $B $C $PATH"']
    assert shell(lines) == "2 1 2 /y:/x:/usr/bin:/bin\n"
    lines = [*section(parse(path), "post"), 'echo "$A $B $C $PATH"']
    assert shell(lines) == "2 1 2 /y:/x:/usr/bin:/bin\n"


def test_a_run_leaves_nothing_to_the_next_and_fails_as_docker_would(write: Write) -> None:
    path = write("FROM a\nRUN cd /tmp; X=1; false; true\nRUN echo $(pwd) \"$X\" 'it''s'\n")
    assert shell(["cd /", *section(parse(path), "post")]) == "/  its\n"
    failing = section(parse(write("FROM a\nRUN false\nRUN echo not reached\n")), "post")
    with pytest.raises(subprocess.CalledProcessError):
        shell(failing)


def test_the_runscript_takes_arguments_instead_of_cmd(write: Write) -> None:
    script = section(parse(write('FROM a\nENTRYPOINT ["echo", "a  b"]\nCMD ["c"]\n')), "runscript")
    assert shell(script) == "a  b c\n"
    assert shell(script, "d e") == "a  b d e\n"
    script = section(parse(write('FROM a\nENTRYPOINT []\nCMD ["echo", "c"]\n')), "runscript")
    assert shell(script) == "c\n"
    assert shell(script, "echo", "d") == "d\n"


def test_the_digest_is_of_all_that_is_built_from(write: Write) -> None:
    path = write("ARG A=1\nFROM a/b:1\nCOPY a.lock /\n")
    first = parse(path)
    assert parse(path).digest == first.digest
    others = {first.digest, first.at(DIGEST).digest, parse(path, {"A": "2"}).digest}
    (path.parent / "b.txt").write_text("not copied")
    assert parse(path).digest == first.digest
    (path.parent / "a.lock").write_text("other")
    others.add(parse(path).digest)
    path.write_text(path.read_text() + "# a comment\n")
    others.add(parse(path).digest)
    assert len(others) == 5


def test_a_base_with_tag_and_digest_is_pinned_and_goes_to_apptainer_without_the_tag(
    write: Write,
) -> None:
    recipe = parse(write(f"FROM docker.io/vllm/vllm-openai:v1@{DIGEST}\n"))
    assert (recipe.base.tag, recipe.base.digest) == ("v1", DIGEST)
    assert f"From: docker.io/vllm/vllm-openai@{DIGEST}\n" in recipe.definition({})
    assert lint(recipe) == []


def test_a_base_without_digest_is_reported_with_what_asks_for_it(write: Write) -> None:
    [found] = lint(parse(write("FROM vllm/vllm-openai:v2\n")))
    assert found.message == "the base docker.io/vllm/vllm-openai:v2 is not pinned by its digest"
    assert "`hpcbench images lock docker://docker.io/vllm/vllm-openai:v2`" in str(found.remedy)


PINNED = f"FROM a/b@{DIGEST}\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("FROM a/b:1", 1, "not pinned by its digest"),
        ("FROM a/b", 1, "`latest`"),
        (PINNED + "RUN curl -L https://x/y | sh", 2, "run unseen"),
        (PINNED + "RUN wget -qO- x | sudo bash -s", 2, "run unseen"),
        (PINNED + 'RUN sh -c "$(curl -fsSL x)"', 2, "run unseen"),
        (PINNED + "RUN bash <(curl x)", 2, "run unseen"),
        (PINNED + "ENV HF_TOKEN=hf_abc", 2, "ENV HF_TOKEN writes a secret"),
        (PINNED + "ARG API_KEY=abc", 2, "ARG API_KEY writes a secret"),
        (PINNED + "ENV INDEX=https://me:pw@x/simple", 2, "ENV INDEX writes a secret"),
        (PINNED + "RUN pip install -i https://me:pw@x/y -r /a.lock\nCOPY a.lock /", 2, "a password"),
        (PINNED + "RUN apt-get update && pip3 install -U pip", 2, "what no lock names"),
        (PINNED + "RUN uv pip install -r /other.lock", 2, "other.lock is not copied"),
    ],
)  # fmt: skip
def test_lint_finds(write: Write, text: str, line: int, message: str) -> None:
    found = [one for one in lint(parse(write(text))) if message in str(one)]
    assert [one.line for one in found] == [line]
    assert found[0].remedy


def test_lint_reads_the_lock(write: Write) -> None:
    path = write(PINNED + "COPY a.lock /x/\nRUN pip install -r /x/a.lock && curl -O x | cat\n")
    lock = path.with_name("a.lock")
    lock.write_text(
        "# by uv\n--index-url https://x\ngood==1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "extra[a,b]==1 ; python_version > '3' --hash=sha256:aa\nbad==1\nrange>=2 --hash=sha256:aa\n"
        "wheel @ https://x/y.whl --hash=sha256:aa\nstar==1.* --hash=sha256:aa\n"
    )
    assert [(one.file, one.line, one.message) for one in lint(parse(path))] == [
        (str(lock), 7, "bad has no version and hash"),
        (str(lock), 8, "range has no version and hash"),
        (str(lock), 10, "star has no version and hash"),
    ]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_our_recipes_are_short_locked_and_pinned(path: Path) -> None:
    recipe = parse(path)
    assert len(path.read_text().splitlines()) <= 25
    assert [file.path.name for file in recipe.files] == ["requirements.lock"]
    assert lint(recipe) == []
    assert recipe.base.digest is not None  # or loosening lint would loosen this, too
    # what a reader sees; the digest alone counts
    assert re.fullmatch(r"v\d+\.\d+\.\d+|bookworm-\d{8}-slim", recipe.base.tag)


@pytest.mark.parametrize("path", SCORERS, ids=lambda path: path.parent.name)
def test_recipes_of_publishers_scorers_are_locked_and_pinned(path: Path) -> None:
    recipe = parse(path)
    assert len(path.read_text().splitlines()) <= 35
    assert lint(recipe) == []
    assert re.fullmatch(r"(bookworm|trixie)-\d{8}-slim", recipe.base.tag)
    assert f"`{path.parent.name}`" in (ROOT / "recipes/scorers/README.md").read_text()
    lock = (path.parent / "requirements.lock").read_text()
    asked = (path.parent / "requirements.in").read_text().splitlines()[-2:]
    (package,) = (line for line in asked if "==" in line)
    name, version = package.split("==")
    assert f"\n{name.partition('[')[0]}=={version} " in lock


def test_recipes_of_one_base_have_one_digest_and_the_readme_tells_it() -> None:
    readme = (ROOT / "recipes/images/README.md").read_text()
    digests: dict[str, set[str]] = {}
    for path in RECIPES:
        base = parse(path).base
        digests.setdefault(base.repository, set()).add(f"{base.tag}@{base.digest}")
        assert f"`{base.tag}`" in readme and f"`{base.digest}`" in readme
    assert {len(one) for one in digests.values()} == {1}


@pytest.mark.long
@pytest.mark.parametrize("name", ["deepseek-ocr", "sglang", "vllm"])
def test_a_base_of_another_version_than_it_was_pinned_as_fails_the_build(
    tmp_path: Path, name: str
) -> None:
    recipe = parse(ROOT / f"recipes/images/{name}/Dockerfile")
    engine = recipe.base.repository.rpartition("/")[2].removesuffix("-openai")
    given, check = (step for step in recipe.steps if "VERSION" in step)
    pinned = given.removeprefix('export VERSION="').removesuffix('"')
    assert f"v{pinned}" == recipe.base.tag

    def installed(version: str) -> list[str]:
        for distribution, its in {engine: version, "timm": "1"}.items():
            folder = tmp_path / f"{distribution}.dist-info"
            folder.mkdir(exist_ok=True)
            (folder / "METADATA").write_text(f"Name: {distribution}\nVersion: {its}\n")
        path = f'export PATH="{Path(sys.executable).parent}:$PATH" PYTHONPATH="{tmp_path}"'
        return ["set -e", path, given, check]

    for right in ("", "+cu129"):
        shell(installed(pinned + right))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        shell(installed(pinned + "9"))
    assert f"AssertionError: {pinned}9" in failed.value.stderr


def image_definitions() -> dict[str, Image]:
    return {
        path.stem: Image.model_validate(yaml.safe_load(path.read_text()))
        for path in sorted(ROOT.glob("registries/images/*.yaml"))
    }


def test_our_image_definitions_are_pinned_as_the_recipe_of_their_engine_is() -> None:
    bases = {}
    for path in RECIPES:
        base = parse(path).base
        bases[base.repository] = base
    documents = image_definitions()
    assert {"sglang", "vllm-openai"} <= set(documents)
    # a base of the same version for older drivers has no recipe
    substitutes = {image.for_older_drivers for image in documents.values()}
    for name, image in documents.items():
        if name in substitutes:
            assert image.digest is not None, name
            continue
        if image.recipe is not None:
            recipe = ROOT / "registries/images" / image.recipe
            assert recipe.resolve() in [path.resolve() for path in (*RECIPES, *SCORERS)], name
            continue
        named = Reference.parse(image.reference or "")
        digest = image.digest or named.digest
        assert digest is not None, name
        if named.repository in bases:
            base = bases[named.repository]
            assert (named.tag, digest) == (base.tag, base.digest), name
        else:
            assert name not in ("sglang", "vllm-openai")


def test_there_is_a_recipe_for_every_engine() -> None:
    assert {path.parent.name for path in RECIPES} == {
        "deepseek-ocr", "evaluation", "hf", "hf-cpu", "sglang", "vllm",
    }  # fmt: skip


CHARACTERS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=9
)
SPECIAL = st.sampled_from(
    [
        "{{ c }}",
        "{",
        "}",
        "$",
        "$A",
        "${B}",
        "\\",
        '"',
        "'",
        "`",
        "%",
        "%post",
        "#",
        " ",
        "!",
        "<<E",
    ]
)
LINE = st.lists(SPECIAL | CHARACTERS, min_size=1, max_size=6).map("".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(value=LINE.filter(lambda text: "'" not in text), command=LINE)
def test_values_and_commands_arrive_as_they_were_written(
    write: Write, value: str, command: str
) -> None:
    escaped = command.replace("\\", "\\\\").replace('"', '\\"')
    text = f'FROM a\nENV A=\'{value}\'\nRUN ["printf", "%s", "{escaped}"]\n'
    recipe = parse(write(text))
    assert BUILD_ARGUMENT.search(recipe.definition({})) is None
    assert all(not line.startswith("%") for line in section(recipe, "post"))
    assert shell(section(recipe, "post")) == command
    assert shell([*section(recipe, "environment"), 'printf %s "$A"']) == value


PARTS = st.sampled_from(
    ["FROM a", "RUN ", "ENV A=", "ENV ", "COPY a.lock ", "ARG B=", "LABEL ", "CMD ", "ENTRYPOINT ",
     "WORKDIR ", "\\", "\n", "\n", "\n", '["a"]', "=", "/e", "c=d"]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(PARTS | SPECIAL | CHARACTERS, max_size=12))
def test_any_text_is_a_recipe_that_the_shell_can_read_or_an_error_with_a_place(
    write: Write, parts: list[str]
) -> None:
    text = "FROM a\n" + "".join(parts)
    try:
        recipe = parse(write(text))
    except UserError as error:
        for problem in error.problems:
            assert problem.line is not None
            assert problem.column is not None
            line = text.split("\n")[problem.line - 1]
            assert 1 <= problem.column <= max(len(line), 1)
        return
    for name in ("post", "environment", "runscript"):
        lines = "\n".join(section(recipe, name))
        subprocess.run(["/bin/sh", "-n", "-c", lines], check=True, capture_output=True)
    assert BUILD_ARGUMENT.search(recipe.definition({})) is None
    sections = re.findall(r"^\s*%.*", recipe.definition({}), re.MULTILINE)
    assert {one.strip() for one in sections} <= {
        "%files", "%post", "%environment", "%labels", "%runscript"
    }  # fmt: skip
