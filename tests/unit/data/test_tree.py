"""Files by name: a plain folder, a version, and a packed version answer alike."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.data import transfer
from hpcbench.data.sync import SmartSync
from hpcbench.data.tree import QUEUED, Tree, at_once, content_hash, folder_files
from hpcbench.errors import UserError
from tests.campaign import examples

NAMES = st.text("ab1 ёЖ#%[]*?-_.", min_size=1, max_size=6).filter(
    lambda name: name.strip(".") and not name.startswith(".")
)
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join),
    st.binary(max_size=700),
    min_size=1,
    max_size=12,
).filter(lambda tree: not any(other.startswith(f"{name}/") for name in tree for other in tree))

PATTERNS = [
    "**/*", "*", "a*", "*/*", "**/*1*", "**/[ab]?", "**", "a/**", "./*", ".//a*", "a/./*", "b//*", "[ab]/*",
]  # fmt: skip


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(TREES, st.sampled_from(PATTERNS))
def test_plain_loose_and_packed_answer_alike(contents: dict[str, bytes], pattern: str) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        source = Path(name) / "source"
        for path, data in contents.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(data)
        for path in {source, *(path.parent for path in source.rglob("*"))}:
            (path / ".hidden").write_bytes(b"of an editor")
        trees = [Tree(source)]
        for many in (10_000, 0):
            patch.setattr(transfer, "MANY", many)
            version = SmartSync(Path(name) / f"cache{many}").bring(str(source), pack=True)
            assert version.content == content_hash(source, folder_files(source))
            assert version.damaged(thorough=True) == []
            trees.append(Tree(version.files))
        assert [tree.is_packed for tree in trees] == [False, False, True]

        def reported(paths: list[Path], tree: Tree) -> list[str]:
            return [path.relative_to(tree.folder).as_posix() for path in paths]

        folders = {str(Path(path).parent) for path in contents}
        answers = [
            (
                reported(tree.files(), tree),
                reported(tree.glob(pattern), tree),
                {folder: reported(tree.listing(tree.folder / folder), tree) for folder in folders},
                {path: tree.read(tree.folder / path) for path in contents},
                [tree.has(tree.folder / path) for path in (*contents, "none", *folders)],
            )
            for tree in trees
        ]
        assert answers[0] == answers[1] == answers[2]
        assert answers[0][3] == contents


def test_a_pattern_goes_down_into_folders_that_are_links(tmp_path: Path) -> None:
    for path in ("far/away/1.txt", "data/test/2.txt"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "data/train").symlink_to(tmp_path / "far")
    tree = Tree(tmp_path / "data")
    assert tree.glob("**/*.txt") == tree.files()
    assert tree.glob("train/**/*.txt") == [tmp_path / "data/train/away/1.txt"]


def test_what_is_not_there_is_reported_in_a_pack_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MANY", 0)
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_bytes(b"\xd0\x9f\nab\xff")
    version = SmartSync(tmp_path / "cache").bring(str(tmp_path / "source"), pack=True)
    tree = Tree(version.files)
    with pytest.raises(UserError, match="no such file"):
        tree.read(version.files / "b.txt")
    with pytest.raises(UserError, match=r"a.txt:2: not UTF-8: byte 0xff \(convert it to UTF-8\)"):
        tree.text(version.files / "a.txt")


def test_a_link_to_a_folder_it_lies_in_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "data/train").mkdir(parents=True)
    (tmp_path / "data/train/1.png").write_bytes(b"1")
    for name in ("again", "once-more"):
        (tmp_path / "data/train" / name).symlink_to(tmp_path / "data")
    tree = Tree(tmp_path / "data")
    assert tree.files() == [tmp_path / "data/train/1.png"]
    assert tree.glob("**/*.png") == [tmp_path / "data/train/1.png"]


@pytest.mark.timeout(20)
def test_links_in_a_circle_have_an_end(tmp_path: Path) -> None:
    """Each file is found on every way that goes through no folder twice."""
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"1")
        for other in "abc".replace(name, ""):
            (tmp_path / name / f"to_{other}").symlink_to(tmp_path / other)
    tree = Tree(tmp_path)
    found = [path.relative_to(tmp_path).as_posix() for path in tree.glob("**/*.png")]
    assert len(found) == 3 + 3 * 2 + 3 * 2
    assert {path for path in found if path.startswith("a/")} == {
        "a/1.png", "a/to_b/1.png", "a/to_c/1.png", "a/to_b/to_c/1.png", "a/to_c/to_b/1.png",
    }  # fmt: skip
    assert tree.files() == tree.glob("**")


@pytest.mark.long
def test_a_million_files_do_not_wait_for_a_thread_at_once() -> None:
    taken = itertools.count()
    answers = at_once(lambda number: number, (next(taken) for _ in range(10 * QUEUED)))
    assert next(answers) == 0
    assert next(taken) <= QUEUED
    assert sum(1 for _ in answers) == 10 * QUEUED - 1
