"""`report.tex`: tables for papers, in booktabs style; a document by itself, and a part of others."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from hpcbench import number_format as form
from hpcbench.experiment.view.performance_json import Performance
from hpcbench.reporting.blocks import (
    Block,
    Code,
    Items,
    Section,
    Text,
    code_pieces,
    with_outer_spaces,
)
from hpcbench.reporting.formats import Format
from hpcbench.reporting.printed_tables import speed_rows
from hpcbench.reporting.sections.shared import dataset_of, performance_in

HEAD = r"""% Written by hpcbench; \input it into a document that loads booktabs, or compile it as it is.
% Names in Cyrillic need the font encoding T2A there; names in other alphabets need LuaLaTeX or XeLaTeX.
\expandafter\ifx\csname @notprerr\endcsname\documentclass
  \def\hpcbenchend{\endinput}
\else
  \documentclass{article}
  \usepackage{booktabs}
%FONTS%  \usepackage[landscape,margin=15mm]{geometry}
  \begin{document}
  \def\hpcbenchend{\end{document}}
\fi
\providecommand{\toprule}{\hline}\providecommand{\midrule}{\hline}\providecommand{\bottomrule}{\hline}
"""

CYRILLIC = r"""  \ifx\directlua\undefined\ifx\XeTeXversion\undefined\usepackage[T1,T2A]{fontenc}\fi\fi
"""
"""Needed only for Cyrillic text; its fonts are not installed everywhere."""

ABREAST = 4
"""With at most so many datasets intervals are beside values; with more they are below."""

ROWS = 40
"""Run tasks in the table of speed: as many as fit on a page."""

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"{\char34}",
    "–": "--", "—": "---", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$",
    "÷": r"$\div$", "±": r"$\pm$", "≤": r"$\le$", "≥": r"$\ge$", "−": "--", "·": r"$\cdot$",
    "→": r"$\rightarrow$", "…": r"\ldots{}", "\N{NO-BREAK SPACE}": "~", "\N{WORD JOINER}": "{}",
}  # fmt: skip
"""Characters that LaTeX interprets, or that some fonts lack → their LaTeX form."""


class Options(BaseModel):
    """Options of the LaTeX tables."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    intervals: bool = True
    """Whether values have their intervals beside them."""
    every_metric: bool = False
    """Whether all metrics have a table, or only the first of each ML task."""
    speed: bool = True
    """Whether there is a table of speed."""


class Latex(Format):
    """`report.tex`."""

    Options = Options

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """The tables."""
        parts = [
            self._matrix(one)
            for one in tables["matrix"]
            if one["primary"] or self.options.every_metric
        ]
        if self.options.speed:
            parts += _speed(performance_in(tables))
        name = f"% Experiment {_comment(tables['id'])}\n"
        text = f"{name}\n" + "\n".join(parts) + "\n\\hpcbenchend\n"
        fonts = CYRILLIC if re.search("[\u0400-\u052f]", text) else ""
        return {"report.tex": HEAD.replace("%FONTS%", fonts) + text}

    def _matrix(self, one: Mapping[str, Any]) -> str:
        heads = ["model", *(dataset_of(column) for column in one["columns"])]
        rows = []
        for row in one["rows"]:
            name = f"{row['model']} ({row['variant']})" if row["variant"] else row["model"]
            cells = [self._cell(cell) for cell in row["cells"]]
            if len(cells) <= ABREAST:
                rows.append([escaped(name), *(" ".join(filter(None, pair)) for pair in cells)])
            else:
                rows.append([escaped(name), *(value for value, _ in cells)])
                rows.append(["", *(ends for _, ends in cells)])
        up = one["higher_is_better"]
        shown = form.metric(one["metric"], one["unit"], higher_is_better=up)
        legend = (
            " Bold: best of its column; [\\,]: 95\\,\\% interval." if self.options.intervals else ""
        )
        caption = f"{escaped(one['ml_task'])}: {escaped(shown)}.{legend}"
        return _table(caption, [escaped(head) for head in heads], rows, "r")

    def _cell(self, cell: Mapping[str, Any] | None) -> tuple[str, str]:
        """Value with its coverage, and the interval."""
        if cell is None:
            return "", ""
        value = escaped(form.value(cell["value"]))
        text = rf"\textbf{{{value}}}" if cell["leads"] else value
        if cell["coverage"] < 1:
            text += rf" {{\scriptsize at {escaped(form.share(cell['coverage']))}}}"
        ends = form.interval(cell["low"], cell["high"])
        if not self.options.intervals or ends == form.DASH:
            return text, ""
        return text, rf"{{\scriptsize {escaped(ends)}}}"


def prose(sections: Sequence[Section], name: str) -> str:
    """Sections of paragraphs, lists and verbatim texts, for `\\input` in a paper.

    Args:
        sections: without tables and figures.
        name: of the experiment, for the first comment.
    """
    lines = [f"% Written by hpcbench from the files of {_comment(name)}"]
    for section in sections:
        lines += ["", rf"\subsection*{{{escaped(section.title)}}}"]
        for block in section.blocks:
            lines += ["", *_prose(block)]
    return "\n".join(lines) + "\n"


def _prose(block: Block) -> list[str]:
    if isinstance(block, Code):
        rows = [rf"\texttt{{{escaped(row)}}}" for row in block.text.splitlines()]
        return [r"\begin{quote}", "\\\\\n".join(rows), r"\end{quote}"]
    if isinstance(block, Items):
        lines = [
            rf"\item \textbf{{{escaped(item.name)}}}: {_with_code(item.text)}"
            if item.name
            else rf"\item {_with_code(item.text)}"
            for item in block.items
        ]
        return [r"\begin{itemize}", *lines, r"\end{itemize}"]
    assert isinstance(block, Text)
    return [_with_code(block.text)]


def _with_code(text: str) -> str:
    """A paragraph in which settings are between backticks."""
    pieces = code_pieces(text)
    if len(pieces) == 1:
        return escaped(text)
    kept = [(is_code, with_outer_spaces(one, escaped(one))) for is_code, one in pieces]
    return "".join(rf"\texttt{{{one}}}" if is_code else one for is_code, one in kept)


def escaped(text: str) -> str:
    """Text that LaTeX sets unchanged: no command, no column, no line break, no control character."""
    plain = " ".join(str(text).split())
    plain = re.sub("-(?=-)", "-\N{WORD JOINER}", plain)  # two would become one dash
    return "".join(
        SPECIAL.get(sign, sign)
        for sign in plain
        if sign in SPECIAL or unicodedata.category(sign)[0] != "C"
    )


def _comment(text: str) -> str:
    return re.sub(r"[^\w.@:-]", " ", text)


def _speed(performance: Performance) -> Iterator[str]:
    found = list(speed_rows(performance, list(performance.run_tasks)[:ROWS]))
    if not found:
        return
    heads = ("run task", "load", "answers/s", "tokens/s", "TTFT, ms", "TPOT, ms", "E2E, ms")
    rows = [
        [
            escaped(text)
            for text in (one.run_task, one.load, one.answers, one.tokens, one.ttft, one.tpot, one.e2e)
        ]
        for one in found
    ]  # fmt: skip
    caption = "Speed of one engine; times: p50 / p95; [\\,]: 95\\,\\% interval."
    yield _table(caption, [escaped(head) for head in heads], rows, "r", 2)


def _table(
    caption: str, heads: list[str], rows: list[list[str]], column: str, names: int = 1
) -> str:
    form_of = "l" * names + column * (len(heads) - names)
    lines = [" & ".join(row) + r" \\" for row in rows]
    narrow = [r"\setlength{\tabcolsep}{3pt}"] if len(heads) > ABREAST + 1 else []
    return "\n".join(
        [
            r"\begin{table}[htbp]", r"\centering\small", *narrow, rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{@{{}}{form_of}@{{}}}}", r"\toprule", " & ".join(heads) + r" \\",
            r"\midrule", *lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
        ]
    )  # fmt: skip
