"""Lines that count as the output that a page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import Block, blocks, missing, shown

PRINTED = """\
hashing model tiny-vlm
submitted 20261126-2045-demo-6uap in /tmp/x/experiments/20261126-2045-demo-6uap
20261126-2045-demo-6uap running 54/160 samples done
20261126-2045-demo-6uap done 160/160 samples done

vqa  anls ↑  0.881  [0.830, 0.914]  20
"""


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("hashing model tiny-vlm", None),
        ("submitted 20261120-1111-demo-aaaa in /home/me/hpcbench/experiments/20261120-1111-demo-aaaa", None),
        ("…\n20261120-1111-demo-aaaa done 160/160 samples done\n\nvqa   anls ↑  0.9  [0.8, 1.0]   20", None),
        ("…\n20261120-1111-other-aaaa done 160/160 samples done", 1),
        ("…\n20261120-1111-demo-aaaa done 50/160 samples done", 1),
        ("hashing model tiny-vlm\n20261120-1111-demo-aaaa done 160/160 samples done", 1),
        ("hashing model tiny-vlm\nsubmitted 20261120-1111-demo-aaaa in …", None),
        ("vqa  anls ↑  0.881  [0.830, 0.914]  21", 0),
        ("vqa  anls ↓  0.881  [0.830, 0.914]  20", 0),
    ],
)  # fmt: skip
def test_words_and_counts_of_a_page_are_those_that_were_printed(
    page: str, wrong: int | None
) -> None:
    lines = page.split("\n")
    assert missing(lines, PRINTED) == (None if wrong is None else lines[wrong])


def test_a_text_block_shows_commands_and_what_they_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: slow -->\n```sh\na\n```\n```text\n$ a\nx\n\ny\n$ b\n$ c\nz\n```\n"
    )
    first, second = blocks(page)
    assert (first.note, first.value, first.text) == ("not run", "slow", "a\n")
    assert list(shown(second)) == [("a", ["x", "", "y"]), ("b", []), ("c", ["z"])]


def test_the_path_of_a_file_is_its_first_line() -> None:
    assert Block("", "", "yaml", "# prompts/x.yaml\nname: x\n").file == "prompts/x.yaml"
    assert Block("", "", "yaml", "name: x\n").file is None
    assert Block("", "", "sh", "# x.yaml\n").file is None
