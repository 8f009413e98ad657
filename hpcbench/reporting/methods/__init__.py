"""The methods section of a paper about one experiment, from its own files.

    methods(experiment)      sections of paragraphs and lists
    markdown, latex, to_json its three forms

Every sentence depends on a value in a file of the experiment. A fact that no file records is a line of the
section "Not recorded"; nothing is assumed in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpcbench.experiment.layout import Experiment
from hpcbench.reporting.blocks import Block, Code, Item, Items, Section, Text
from hpcbench.reporting.formats import latex as latex_format
from hpcbench.reporting.formats import markdown as markdown_format
from hpcbench.reporting.methods import asking, inputs, outcomes, scoring, software
from hpcbench.reporting.methods.facts import Cited, Facts, MethodsLine, Missing


@dataclass(frozen=True, slots=True)
class Methods:
    """The methods section of an experiment."""

    experiment: str
    """Id of the experiment."""
    sections: tuple[Section, ...]
    """Its sections, in order; the last two are what is not recorded, and the references."""

    @property
    def title(self) -> str:
        """The heading."""
        return f"Methods of {self.experiment}"


def methods(experiment: Experiment) -> Methods:
    """Describe how an experiment was made.

    Raises:
        EnvironmentFault: `metrics.json` is missing or damaged.
    """
    facts = Facts.of(experiment)
    found: list[Section] = []
    missing: dict[str, None] = {}
    cited: dict[str, None] = {}
    for name, title, said in (
        ("models", "Models", inputs.models(facts)),
        ("data", "Data", inputs.data(facts)),
        ("prompts", "Prompts", inputs.prompts(facts)),
        ("images", "Images", asking.images(facts)),
        ("decoding", "Decoding and reading of answers", asking.decoding(facts)),
        ("load", "Load and hardware", asking.load(facts)),
        ("metrics", "Metrics", scoring.metrics(facts)),
        ("statistics", "Statistics", scoring.statistics(facts)),
        ("outcomes", "Outcomes", outcomes.outcomes(facts)),
        ("software", "Software", software.software(facts)),
    ):
        blocks = list(_sorted(said, missing, cited))
        if blocks:
            found.append(Section(name, title, tuple(blocks)))
    for name, title, lines in (
        ("missing", "Not recorded", missing),
        ("references", "References", cited),
    ):
        if lines:
            items = tuple(Item("", one) for one in lines)
            found.append(Section(name, title, (Items(items),)))
    return Methods(experiment.id, tuple(found))


def markdown(found: Methods) -> str:
    """As Markdown."""
    return markdown_format.written(found.title, "", found.sections)[0]


def latex(found: Methods) -> str:
    """As LaTeX, for `\\input` in a paper."""
    return latex_format.prose(found.sections, found.experiment)


def to_json(found: Methods) -> dict[str, Any]:
    """As plain data: the paragraphs of each section, list items as `NAME: TEXT`."""
    return {
        "experiment": found.experiment,
        "sections": [
            {
                "name": one.name,
                "title": one.title,
                "paragraphs": [text for block in one.blocks for text in _texts(block)],
            }
            for one in found.sections
        ],
    }


def _sorted(
    said: Iterator[MethodsLine], missing: dict[str, None], cited: dict[str, None]
) -> Iterator[Block]:
    """The blocks; what is missing or cited is collected for its own section."""
    for one in said:
        if isinstance(one, Missing):
            missing[one.text] = None
        elif isinstance(one, Cited):
            cited[one.text] = None
        else:
            yield one


def _texts(block: Block) -> Iterator[str]:
    if isinstance(block, (Text, Code)):
        yield block.text
    elif isinstance(block, Items):
        for item in block.items:
            yield f"{item.name}: {item.text}" if item.name else item.text
