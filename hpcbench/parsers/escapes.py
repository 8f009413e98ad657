r"""The meaning of a backslash in a model's JSON: an escape, or the beginning of a LaTeX command.

`"\frac{a}{b}"` is valid JSON and says form feed, `rac{a}{b}`. A model that writes this means LaTeX and forgot
to double the backslash. JSON has the escapes `\b \f \n \r \t \u`, so the commands that begin with these
letters are listed here; all others (`\alpha`) are invalid JSON and are mended anyway.

A name counts only as a whole word: `\nu` is the letter, `\nuclear` a line break and a word. Where the rest of
a command is itself a word (`\ne`, `\nless`), the surrounding text decides. Each such decision is marked, in
either direction.
"""

from __future__ import annotations

import re

LATEX = "LaTeX backslashes"
LATEX_OR_BREAK = "line break or LaTeX"
CONTROL = "control characters"

_COMMANDS = frozenset(re.findall("[A-Za-z]+", """
    backepsilon backprime backsim backsimeq backslash bar barwedge baselineskip bbox because begin beta beth
    between bf bfit bfseries bibitem bibliography big bigcap bigcirc bigcup bigg biggl biggm biggr bigl bigm
    bigodot bigoplus bigotimes bigr bigskip bigsqcap bigsqcup bigstar bigtriangledown bigtriangleup biguplus
    bigvee bigwedge binom blacklozenge blacksquare blacktriangle blacktriangledown blacktriangleleft
    blacktriangleright bm bmod bold boldmath boldsymbol bot bottomrule bowtie box boxdot boxed boxminus
    boxplus boxtimes bra brace bracevert brack braket breve buildrel bullet bumpeq
    fallingdotseq fbox fboxsep fcolorbox fill fint flat flushleft flushright fontfamily fontsize footnote
    footnotemark footnotesize footnotetext forall frac frak frakfamily frame framebox frenchspacing frown
    nLeftarrow nLeftrightarrow nRightarrow nVDash nVdash nabla natural ncong ne nearrow neg neq neswarrow
    newcommand newenvironment newline newpage nexists ngeq ngeqq ngeqslant ngtr ni nicefrac nleftarrow
    nleftrightarrow nleq nleqq nleqslant nless nmid nobreak nocite node noindent nolimits nolinebreak
    nonumber nopagebreak norm normalfont normalsize not notag notin notni nparallel nprec npreceq nrightarrow
    nshortmid nshortparallel nsim nsubset nsubseteq nsubseteqq nsucc nsucceq nsupset nsupseteq nsupseteqq
    ntriangleleft ntrianglelefteq ntriangleright ntrianglerighteq nu nulldelimiterspace num numberline nvDash
    nvdash nwarrow nwsearrow
    rVert raggedleft raggedright raise raisebox rangle rbrace rbrack rceil real ref reflectbox renewcommand
    resizebox restriction rfloor rgroup rhd rho right rightarrow rightarrowtail rightharpoondown
    rightharpoonup rightleftarrows rightleftharpoons rightrightarrows rightsquigarrow rightthreetimes
    risingdotseq rlap rm rmfamily rmoustache root rotatebox rowcolor rtimes rule rvert
    tableofcontents tabularnewline tag tan tanh tau tbinom tcfrac tdplot text textasciicircum textasciitilde
    textbackslash textbar textbf textbraceleft textbraceright textbullet textcelsius textcircled textcolor
    textcopyright textdagger textdegree textdollar textellipsis textemdash textendash texteuro textgreater
    textheight textit textless textmd textmu textnormal textohm textperthousand textquotedblleft
    textquotedblright textquoteleft textquoteright textregistered textrm textsc textsection textsf textsl
    textsterling textstyle textsubscript textsuperscript texttrademark texttt textunderscore textup textwidth
    textyen tfrac tg th thanks the therefore theta thetasym thickapprox thickmuskip thicksim thickspace
    thinmuskip thinspace thispagestyle tilde times tiny title titlepage to today top toprule triangle
    triangledown triangleleft trianglelefteq triangleq triangleright trianglerighteq tt ttfamily
    twoheadleftarrow twoheadrightarrow
    uArr uarr ulcorner uline unboldmath underbar underbrace underbracket undergroup underleftarrow
    underleftrightarrow underline underparen underrightarrow underset undertilde unicode unit unitfrac unlhd
    unrhd uparrow updownarrow upharpoonleft upharpoonright uplus uppercase upsilon upuparrows urcorner url
    """))  # fmt: skip
"""Commands of LaTeX, its AMS packages, KaTeX and MathJax that begin with b, f, n, r, t or u."""

_WORDS_AFTER_BREAK = frozenset({
    "ncong", "ne", "neg", "nexists", "ni", "nless", "nmid", "node", "norm", "nparallel", "nsim", "nsubset",
    "nsupset", "nu", "num",
})  # fmt: skip
"""Commands of these that may also be a line break before a word, in some language."""

_BEFORE_BRACES = frozenset({"node", "norm", "num"})
"""Commands of these that mean nothing without an argument."""

_NAME = re.compile(r"[A-Za-z]+")
_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_MATHS = re.compile(r"[$^=]|_[{\w]|\\\\[A-Za-z]|\\[ac-eg-mo-qsv-zA-Z]")
_DRIVE = re.compile(r"\W[A-Za-z]:")
r"""The character before the backslash of a path: `C:\temp` has no tab in it."""
_PATH = re.compile(r"(?:\\[\w-]+)+\.[A-Za-z]\w{1,3}(?!\w)")
_AROUND = 60


def command(text: str, at: int) -> tuple[bool, str]:
    r"""Decide whether the backslash at `at` is LaTeX, and mark the decision.

    Args:
        text: JSON, or nearly.
        at: place of a backslash within one of its texts, before one of `b f n r t u`.

    Returns:
        Whether a LaTeX command begins here; the mark, empty if this is certainly JSON's escape.
    """
    match = _NAME.match(text, at + 1)
    if match is None:
        return False, ""
    name, end = match.group(), match.end()
    if name not in _COMMANDS or text[end : end + 1].isalpha():
        return False, CONTROL if _is_odd(text, at, name) else ""
    if name in _BEFORE_BRACES:
        latex = text.startswith(("{", "[", "("), end)
    else:
        latex = name not in _WORDS_AFTER_BREAK or _is_maths(text, at, end)
    if latex:
        return True, LATEX
    return False, LATEX_OR_BREAK


def _is_odd(text: str, at: int, name: str) -> bool:
    """Whether an escape before letters is likely a slip: in prose, only a line break is likely."""
    if name[0] in "bf":
        return len(name) > 1
    if _DRIVE.match(text, at - 3):
        return name[0] in "rt" or _PATH.match(text, at) is not None
    return name[0] in "rt" and any(name[:end] in _COMMANDS for end in range(5, len(name)))


def _is_maths(text: str, start: int, end: int) -> bool:
    """Whether the text around a name is a formula rather than prose."""
    before = text[max(0, start - _AROUND) : start].rpartition('"')[2]
    behind = text[end : end + _AROUND].partition('"')[0]
    if not before or before[-1] in " ({[" or not re.match(r"\s+[^\W\d]", behind):
        return True
    around = before + " " + behind
    if _MATHS.search(around):
        return True
    names = (one.group()[1:] for one in re.finditer(r"\\[A-Za-z]+", around))
    return any(name in _COMMANDS and name not in _WORDS_AFTER_BREAK for name in names)


def with_latex(written: str) -> tuple[str, tuple[str, ...]]:
    """Sound JSON with the backslashes of its LaTeX commands doubled; and the marks of the decisions."""
    if "\\" not in written:
        return written, ()
    marks: dict[str, None] = {}
    pieces: list[str] = []
    done = 0
    for match in _ESCAPE.finditer(written):
        if written[match.start() + 1] not in "bfnrt":
            continue
        latex, mark = command(written, match.start())
        if mark:
            marks[mark] = None
        if latex:
            pieces += (written[done : match.start()], "\\")
            done = match.start()
    return "".join((*pieces, written[done:])), tuple(marks)
