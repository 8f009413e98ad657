"""Parsers read an answer into a prediction, for every kind of work.

    >>> from hpcbench.parsers import DataParser
    >>> DataParser("object").read("Here it is: {'total': '12,50',}")
    Reading(value={'total': '12,50'}, reason='', form='prose', repairs=('single quotes', 'trailing comma'), …)

An unreadable answer, or one that breaks its schema, has a reason instead of a value; it is counted, never
guessed. The reading names every repair.
"""

from __future__ import annotations

from hpcbench.parsers.by_name import (
    DeepSeekOcr,
    DocTags,
    FrontMatter,
    JsonObject,
    Label,
    LayoutJson,
    Otsl,
    PageHtml,
    Text,
)
from hpcbench.parsers.deepseek import Layout, layout
from hpcbench.parsers.reader import Read, reader, reading_of, same_reading, version_of
from hpcbench.parsers.structured import DataParser, Output

__all__ = [
    "DataParser",
    "DeepSeekOcr",
    "DocTags",
    "FrontMatter",
    "JsonObject",
    "Label",
    "Layout",
    "LayoutJson",
    "Otsl",
    "Output",
    "PageHtml",
    "Read",
    "Text",
    "layout",
    "reader",
    "reading_of",
    "same_reading",
    "version_of",
]
