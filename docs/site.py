"""What the site has beside the pages of this folder: pages made of the code, and files that pages link to.

Links that leave `docs/` lead to files of the repository; the site carries a copy of each, so that it is whole
without a network.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hpcbench.cli.parse import parser
from hpcbench.experiment import layout

ROOT = Path(__file__).parent.parent
BROWSE = "source"
"""Folder of the site that holds copies of the repository's files."""

# A link that leaves docs/ from a page at any depth: `](../../registries/x.yaml#part)`.
_LINK = re.compile(r"\]\(((?:\.\./)+)([^)#\s]+)(#[^)\s]*)?\)")

SHIM_ELSEWHERE, SHIM = "https://unpkg.com/iframe-worker/shim", "assets/javascripts/iframe-worker.js"
"""Browsers start no worker for a page on the disk; this lets search work there."""

_WEIGHTS = {
    "faq.md": 4, "versions.md": 4, "how-to": 3, "for-admins.md": 3, "cluster-guide.md": 2, "exports.md": 2,
    "reference": 0.1, "reference/changelog.md": 0.02, "decisions": 0.005,
}  # fmt: skip
"""Folder or page → its weight in search: a reader asks how, before the history of a decision."""

_ROWS = {"troubleshooting.md": 4, "glossary.md": 6, "definitions.md": 1}
"""Page whose rows search finds one by one (a message, a word, a key) → weight of a row."""
_ROW = re.compile(r'<tr id="row-(\d+)">\s*<td[^>]*>(.*?)</td>(.*?)</tr>', re.DOTALL)

API = (
    ("Metrics", "hpcbench.metrics"),
    ("Statistics", "hpcbench.statistics"),
    ("Plugin protocols", "hpcbench.plugins"),
    ("Contract tests", "hpcbench.testing"),
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of code, and the files of the repository that pages link to."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](../")
    made: dict[str, str | bytes] = {
        "reference/commands.md": _commands(),
        "reference/files.md": _files(),
        "reference/python.md": _api(),
        "reference/changelog.md": changelog,
        "reference/decisions.md": _decisions(),
    }
    for page in files.documentation_pages():
        for place in _linked(page.src_uri, page.content_string):
            made |= dict(_copies(place))
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to their copies in the site."""
    up = "../" * page.file.src_uri.count("/")
    folder = page.file.src_uri.partition("/")[0]
    page.meta["search"] = {"boost": _WEIGHTS.get(page.file.src_uri, _WEIGHTS.get(folder, 1))}

    def rewritten(match: re.Match[str]) -> str:
        if not _leaves(page.file.src_uri, match):
            return match[0]
        target, part = match[2].rstrip("/"), match[3] or ""
        if target == "CHANGELOG.md":
            return f"]({up}reference/changelog.md{part})"
        name = f"{target}/index.html" if (ROOT / target).is_dir() else _shown(target)
        return f"]({up}{BROWSE}/{name}{part})"

    return _LINK.sub(rewritten, markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give each row of a page of messages or words an address, for `on_post_build`."""
    if page.file.src_uri not in _ROWS:
        return content
    numbers = itertools.count(1)
    return re.sub(r"<tr>(?=\s*<td)", lambda _: f'<tr id="row-{next(numbers)}">', content)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Let search from the disk find its helper in the site: the theme would ask a server for it."""
    return output.replace(SHIM_ELSEWHERE, f"{'../' * page.file.src_uri.count('/')}{SHIM}")


@event_priority(50)  # before the search plugin writes its index
def on_post_build(config: MkDocsConfig) -> None:
    """Add the rows to the search's index, and bring the helper, which `npm ci` has installed."""
    plugin: Any = config.plugins["material/search"]
    for name, weight in _ROWS.items():
        address = f"{name.removesuffix('.md')}.html"
        content = Path(config.site_dir, address).read_text(encoding="utf-8")
        for number, title, text in _ROW.findall(content):
            text = re.sub(r"</?td[^>]*>", " ", text)
            entry = {"location": f"{address}#row-{number}", "title": title, "text": text}
            plugin.search_index.entries.append(entry | {"boost": weight})
    Path(config.site_dir, SHIM).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(
        ROOT / "portal/node_modules/iframe-worker/shim/index.js", Path(config.site_dir, SHIM)
    )


def _leaves(page: str, link: re.Match[str]) -> bool:
    """Whether a link of a page leads out of docs/."""
    return link[1].count("../") > page.count("/")


def _linked(page: str, text: str) -> Iterator[Path]:
    """What a page links to outside of docs/."""
    for link in _LINK.finditer(text):
        if _leaves(page, link) and link[2] != "CHANGELOG.md":
            yield ROOT / link[2]


def _copies(place: Path) -> Iterator[tuple[str, bytes]]:
    """Name in the site and bytes of a file, or of a folder's files with a page that lists them."""
    if place.is_file():
        yield f"{BROWSE}/{_shown(str(place.relative_to(ROOT)))}", place.read_bytes()
        return
    listed = subprocess.run(
        ["git", "ls-files", "-z", str(place)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    title = place.relative_to(ROOT)
    names = [Path(name).relative_to(title) for name in listed.stdout.split("\0") if name]
    for name in names:
        yield f"{BROWSE}/{title}/{_shown(str(name))}", (place / name).read_bytes()
    items = "".join(f'<li><a href="{_shown(str(name))}">{name}</a></li>' for name in names)
    page = (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1><ul>{items}</ul>"
    )
    yield f"{BROWSE}/{title}/index.html", page.encode()


def _shown(name: str) -> str:
    """The name under which a file is shown: as plain text where a builder would make a page of it."""
    return f"{name}.txt" if name.endswith(".md") else name


def _commands() -> str:
    """A page of all commands: their help, as the program prints it."""
    lines = ["# Commands", "", "What `hpcbench COMMAND --help` prints, for each command.", ""]
    for words, command in _verbs(parser(), ("hpcbench",)):
        level = "##" if len(words) == 2 else "###"
        lines += [
            f"{level} {' '.join(words[1:])}",
            "",
            "```text",
            command.format_help().rstrip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def _verbs(
    command: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    for action in command._actions:
        choices: Any = action.choices
        if isinstance(choices, dict):
            for name, verb in choices.items():
                yield (*words, name), verb
                yield from _verbs(verb, (*words, name))


def _files() -> str:
    """A page of an experiment's files: the list in the docstring of the room that knows their paths."""
    lines = [
        "# Files of an experiment",
        "",
        "All files below `HPCBENCH_HOME/experiments/EXPERIMENT`. In names, `RUN_TASK`, `GROUP` and `JUDGE`",
        "are ids, `NNNNN` is a number and `A` an attempt. [Which process writes each file, and how]"
        "(../architecture.md#the-experiments-directory); [what may change](../versions.md).",
        "",
        "| file or folder | content |",
        "|---|---|",
    ]
    listed = str(layout.__doc__).partition("EXPERIMENT/\n")[2]
    for entry in re.split(r"\n  (?=\S)", f"\n{listed.rstrip()}")[1:]:
        name, _, text = " ".join(entry.split()).partition(" ")
        lines.append(f"| `{name}` | {text} |")
    fields = (
        "[scores](../scores.md)", "[metrics.json and performance.json](../measuring.md)",
        "[events](../events.md)", "[turns of agents](../agents.md#what-is-recorded)",
        "[report.json](../reports.md)", "[status --json](../status.md)",
    )  # fmt: skip
    return "\n".join([*lines, "", f"Their fields: {', '.join(fields)}.", ""])


def _api() -> str:
    """A page of the Python API that may be used alone."""
    lines = [
        "# Python API",
        "",
        "These packages may be used alone; the rest of the code may change.",
        "",
    ]
    for title, module in API:
        lines += [f"## {title}", "", f"::: {module}", ""]
    return "\n".join(lines)


def _decisions() -> str:
    """A page that lists all decisions."""
    lines = [
        "# Decisions",
        "",
        "One paragraph each: what was chosen, and what would change our mind.",
        "",
    ]
    for path in sorted((ROOT / "docs/decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}](../decisions/{path.name})")
    return "\n".join([*lines, ""])
