"""`report.md` with its plots as files, for terminals, repositories and comments on merge requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any

from hpcbench import number_format as form
from hpcbench.reporting import figures
from hpcbench.reporting.blocks import (
    Block,
    Code,
    Flipped,
    Items,
    Link,
    Plot,
    Section,
    Shown,
    Strong,
    Table,
    Text,
    code_pieces,
    with_outer_spaces,
)
from hpcbench.reporting.formats import Format, Options, drawn
from hpcbench.reporting.report_tables import Tables
from hpcbench.reporting.sections.leaderboard import verdict
from hpcbench.visible import visible

_SIGNS = re.compile(r"([\\`*|~]|(?<=\])[(\[])")
_EDGE = re.compile(r"(?<!\w)_|_(?!\w)")
_LEADING = re.compile(r"^(\d*)(>|#(?=[#\s]|$)|[-+=](?=[-+=\s]|$)|(?<=\d)[.)](?=\s|$))")
_DEFINITION = re.compile(r"^\[(?=.*\]:|[ xX]\](\s|$))")
"""A link's or footnote's definition, which is not shown; or a box of a task list."""


class Markdown(Format):
    """`report.md` and an SVG file for each plot."""

    Options = Options

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """The report and its plots."""
        plan = tables["plan"]
        title = f"{plan['name']}: {tables['id']}"
        text, files = written(title, plan.get("description") or "", self.options.of(tables))
        return {"report.md": text, **files}


def written(
    title: str, description: str, sections: Sequence[Section]
) -> tuple[str, dict[str, str | bytes]]:
    """A page with any sections, and the files of its plots."""
    lines = [f"# {escaped(title)}", ""]
    if description:
        lines += [escaped(description), ""]
    files: dict[str, str | bytes] = {}
    for section in sections:
        lines += _section(section)
        files |= {f"{one.name}.svg": drawn(one) for one in _figures(section)}
    return "\n".join(lines).rstrip() + "\n", files


def summary(tables: Tables) -> list[str]:
    """The first section of a report, in blocks: paragraphs, and tables below their names.

    The checks of a gate are left out: `verdict.json` has them.
    """
    blocks = verdict(tables, checks=False).blocks
    return "\n\n".join("\n".join(_block(one)) for one in blocks).split("\n\n")


def escaped(text: str) -> str:
    """Text that Markdown shows unchanged, on one line: no markup, no HTML, no mentions."""
    return _DEFINITION.sub(r"\\[", _LEADING.sub(r"\1\\\2", _within(text)))


def _within(text: str) -> str:
    """The same inside a line, where no sign makes a list, a heading or a definition."""
    whole = visible(" ".join(str(text).split()))
    whole = _EDGE.sub(r"\\_", _SIGNS.sub(r"\\\1", whole))
    return whole.replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")


def _figures(section: Section) -> Iterator[figures.Figure]:
    for block in (*section.blocks, *(one for part in section.parts for one in part.blocks)):
        if isinstance(block, Plot):
            yield block.figure


def _section(section: Section) -> list[str]:
    lines = [f"## {escaped(section.title)}", ""]
    for block in section.blocks:
        lines += [*_block(block), ""]
    for part in section.parts:
        lines += [f"### {escaped(part.title)}", ""]
        for block in part.blocks:
            lines += [*_block(block), ""]
    return lines


@singledispatch
def _block(block: Block) -> list[str]:
    raise TypeError(block)


@_block.register
def _(block: Text) -> list[str]:
    text = _with_code(block.text)
    return [f"**{text}**" if block.style == "warn" else text]


def _with_code(text: str) -> str:
    """A paragraph of hpcbench's own words, in which commands are between backticks."""
    pieces = code_pieces(text)
    if len(pieces) == 1:
        return escaped(text)
    return "".join(
        f"`{visible(' '.join(one.split()))}`"
        if is_code
        else with_outer_spaces(one, _within(one) if place else escaped(one))
        for place, (is_code, one) in enumerate(pieces)
    )


@_block.register
def _(block: Code) -> list[str]:
    if block.title:
        return []  # long, and a file beside the report
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
    return [fence, visible(block.text), fence]


@_block.register
def _(block: Table) -> list[str]:
    heads = " | ".join(escaped(head) or " " for head in block.heads)
    rule = "|".join(
        "---" if place < block.names or place in block.texts else "--:"
        for place in range(len(block.heads))
    )
    lines = [f"**{escaped(block.caption)}**", "", f"| {heads} |", f"|{rule}|"]
    return [*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in block.rows)]


def _cell(text: str) -> str:
    cell = escaped(text) or form.DASH
    if isinstance(text, Link):
        return f"[{cell}](#{text.to})"
    return f"**{cell}**" if isinstance(text, Strong) and text.strip() else cell


@_block.register
def _(block: Items) -> list[str]:
    lines = []
    for item in block.items:
        name = f"**{escaped(item.name)}**: " if item.name else ""
        lines.append(f"- {name}{_with_code(item.text)}")
        lines += [f"  - {escaped(inner)}" for inner in item.inner]
    return lines


@_block.register
def _(block: Plot) -> list[str]:
    figure = block.figure
    return [f"![{escaped(figures.described(figure))}]({figure.name}.svg)"]


@_block.register
def _(block: Shown) -> list[str]:
    one = block.sample
    lines = [f"- **{escaped(one['sample'])}**, {escaped(one['metric'])} {form.value(one['score'])}"]
    if one["prompt"]:
        lines.append(f"  - asked: {escaped(one['prompt'])}")
    answer = one["answer"]
    text = escaped(answer) if answer is not None else f"none, {escaped(one['outcome'])}"
    others = f" (or {one['others']} others)" if one["others"] else ""
    lines += [f"  - answer: {text}", f"  - reference: {escaped(one['reference'])}{others}"]
    if one["diff"] and len(one["diff"]) > 2:
        lines.append(f"  - difference: {_diff(one['diff'])}")
    return lines


@_block.register
def _(block: Flipped) -> list[str]:
    one, other = block.baseline, block.candidate
    scores = " → ".join(form.value(side["score"]) for side in (one, other))
    lines = [
        f'- <a id="{block.anchor}"></a>**{escaped(other["sample"])}**, '
        f"{escaped(other['metric'])} {scores}"
    ]
    if asked := other["prompt"] or one["prompt"]:
        lines.append(f"  - asked: {escaped(asked)}")
    lines.append(f"  - reference: {escaped(other['reference'])}")
    for who, side in (("baseline", one), ("candidate", other)):
        answer = side["answer"]
        text = escaped(answer) if answer is not None else f"none, {escaped(side['outcome'])}"
        lines.append(f"  - {who}: {text}")
    return lines


def _diff(pieces: list[tuple[str, str]]) -> str:
    marks = {"same": "", "lost": "~~", "added": "**"}
    return " ".join(
        f"{marks[kind]}{escaped(text)}{marks[kind]}" for kind, text in pieces if text.strip()
    )
