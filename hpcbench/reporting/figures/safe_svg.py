"""From matplotlib's file to one element that any page can contain without harm."""

from __future__ import annotations

import re
from html import escape

from hpcbench.reporting.figures.figure_data import Figure
from hpcbench.reporting.figures.style import INK, clean, described

_TAG = re.compile(r"<[^>]+>")
"""matplotlib escapes `<` and `>` in its text, so this never matches within a name."""

_ID = re.compile(r' id="([^"]*)"')

_USED = re.compile(r'((?:href="|url\()#)([^")]+)')

_NUMBERS = re.compile(r' (?:d|x|y|width|height|transform)="[^"]*"')

_LONG = re.compile(r"(\.\d\d)\d+")

_FONTS = re.compile(r"(font(?:-family)?: [^;\"']*)'[^;\"]*?sans-serif")


def as_element(figure: Figure, text: str) -> str:
    """The `<svg>` element with title and description; no prologue, no style sheet, no unused ids.

    A style sheet within SVG would apply to the whole page; ids of two figures on a page must differ.
    Hundredths of a point are precise enough for the eye.
    """
    inner = text[text.index(">", text.index("<svg")) + 1 :]
    box = re.search(r'viewBox="([^"]+)"', text)
    view = box[1] if box else "0 0 620 270"
    inner = re.sub(r"<metadata>.*?</metadata>\s*", "", inner, count=1, flags=re.DOTALL)
    inner = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", inner, count=1, flags=re.DOTALL)
    used = {found[2] for tag in _TAG.findall(inner) for found in _USED.finditer(tag)}
    inner = _TAG.sub(lambda tag: _tag(tag[0], figure.name, used), inner)
    width, height = view.split()[2:]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' width="{width}" height="{height}" viewBox="{view}" role="img"'
        f' aria-labelledby="{figure.name}-title" aria-describedby="{figure.name}-desc"'
        f' stroke-linejoin="round" stroke-linecap="butt">\n'
        f'<title id="{figure.name}-title">{escape(clean(figure.title), quote=False)}</title>\n'
        f'<desc id="{figure.name}-desc">{escape(described(figure), quote=False)}</desc>\n'
        f"{inner.strip()}\n"
    )


def _tag(tag: str, name: str, used: set[str]) -> str:
    tag = _ID.sub(lambda one: f' id="{name}-{one[1]}"' if one[1] in used else "", tag)
    tag = _USED.sub(rf"\g<1>{name}-\g<2>", tag)
    tag = _NUMBERS.sub(lambda one: _LONG.sub(r"\1", one[0]), tag)
    tag = _FONTS.sub(r"\1system-ui, sans-serif", tag)
    return re.sub(rf'style="([^"]*{INK}[^"]*)"', _with_page_ink, tag)


def _with_page_ink(found: re.Match[str]) -> str:
    """The page's own ink, where CSS properties are supported; else a grey that is readable anywhere."""
    style = found[1]
    there = [name for name in ("fill", "stroke") if re.search(rf"(^|; ?){name}: {INK}", style)]
    plain = "".join(f'{name}="{INK}" ' for name in there)
    return f'{plain}style="{style.replace(INK, f"var(--ink, {INK})")}"'
