"""Settings of a judge: a run task whose model rates the answers of another run task."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpcbench.schema.names import FLAT_NAME, LONGEST
from hpcbench.schema.shared_types import Part


class Judge(Part):
    """The run task whose answers a judge rates; see docs/judging.md."""

    of: Annotated[str, Field(pattern=FLAT_NAME, max_length=LONGEST)]
    """Run task of the plan whose answers the model rates, on the same dataset. It ends before this one
    starts, and this one asks about the same samples."""
    against: Annotated[str, Field(pattern=FLAT_NAME, max_length=LONGEST)] | None = None
    """Run task whose answers are compared with those of `of`, for a rubric of pairs. Odd repeats show the
    answer of `of` first, even repeats second, so `repeats` must be even. Without it: each answer alone."""
    pages: bool = True
    """Whether the judge sees the sample's images."""
    labels: str | None = None
    """File of human labels, CSV or JSONL, relative to this file: columns `sample`, `answer`, `label`, for
    pairs also `other`. Without it: the scores are marked as uncalibrated until `hpcbench judge check
    EXPERIMENT --labels FILE --keep`."""

    @property
    def judged(self) -> tuple[str, ...]:
        """The run tasks whose answers it reads."""
        return (self.of,) if self.against is None else (self.of, self.against)
