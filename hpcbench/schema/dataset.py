"""Datasets: where their samples are, and the scores that were published for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from hpcbench.schema.definition import Definition, FlatName, Name
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.prompt import Language
from hpcbench.schema.shared_types import Part

LanguageCode = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]
"""A language by ISO 639."""

Condition = Literal[
    "prompt", "generation", "images", "answers", "engine", "precision", "kit", "samples",
]  # fmt: skip
"""A condition of a measurement, in this order in reports."""


class Published(Part):
    """A score that was published for this dataset, with the conditions that its source states."""

    model: str = Field(min_length=1)
    """Model, as its hub names it: `ORGANISATION/NAME`."""
    value: float
    """The score, as it was published."""
    of: float = Field(default=100, gt=0)
    """The best value of the scale of `value`: 100 for per cent, 1 for a share, 1000 for a sum of points."""
    metric: Name | None = None
    """Metric definition that computes this score here. Without it: none does, and `program` is required."""
    program: str = ""
    """Program or judge that made the score, where no metric of hpcbench does; `hpcbench reproduce` refuses
    it."""
    split: str | None = None
    """Split it was measured on. Without it: the dataset's `split`."""
    samples: int | None = Field(default=None, gt=0)
    """Samples it was measured on. Without it: the source does not say it."""
    source: str = Field(min_length=1)
    """Where it was read: address, with revision or date, and place in it."""
    run_task: FlatName | None = None
    """Run task definition with the conditions of this measurement, as far as they were published; `hpcbench
    reproduce` runs it."""
    conditions: Mapping[Condition, str] = Field(default_factory=dict)
    """Condition → its statement in the source. A condition that is missing here was not published."""

    @model_validator(mode="after")
    def _one_way(self) -> Published:
        if (self.metric is None) == (not self.program):
            raise ValueError("name the `metric` that computes it here, or the `program` that does")
        return self


class Dataset(Definition):
    """Page images with questions and references, in the format in which they are stored."""

    source: str
    """Folder of the dataset, relative to this file, or `SCHEME://…`: file, s3, sftp, http, https, hf, or the
    scheme of a package's storage plugin."""
    storage: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of that storage; they override the site's. Write secrets as references."""
    iterator: str = "table"
    """Name in the entry-point group `hpcbench.datasets`, or a class by its dotted path."""
    package: Name | None = None
    """Package definition, or requirement, that provides the iterator or the storage plugin."""
    annotations: str = ""
    """File inside the folder that lists the samples; empty where the iterator needs none."""
    split: str | None = None
    """Only samples of this split. Without it: all samples."""
    splits: tuple[str, ...] = ()
    """All splits of the dataset, for cross-checks. Without them: unknown."""
    samples: int | None = Field(default=None, gt=0)
    """Number of samples (of its `split`, where it names one); planning uses it before the files are on this
    machine."""
    size_gb: float | None = Field(default=None, gt=0)
    """Size of its files, GB (10^9 bytes); for planning."""
    language: Language | None = None
    """Language of its questions and texts, for default prompts. Without it: that of most letters of its first
    samples."""
    fields: tuple[str, ...] = ()
    """Fields that every sample has in addition to its images, for cross-checks."""
    group_by: tuple[str, ...] = ()
    """Metadata that every sample has, for prompts and tables, e.g. `doc_type`."""
    mapping: FieldMap = Field(default_factory=FieldMap)
    """Where a record keeps the parts of a sample, if the record is not in hpcbench's own form."""
    on_bad: Literal["fail", "skip"] = "fail"
    """How to treat a row that cannot be a sample (no reference, an image that is missing or is not an image,
    wrong encoding): `fail` reports an error before anything runs; `skip` leaves the row out, reports it, and
    counts it against coverage."""
    content_hash: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Hash of annotations and images; hpcbench checks it before it submits a job."""
    licence: str = ""
    """Licence, as its publisher states it."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the iterator."""
    ml_task: Name | None = None
    """ML task that its authors made it for; lists filter by it."""
    languages: tuple[LanguageCode, ...] = ()
    """Languages of its texts, by ISO 639: `en`, `zh`; lists filter by them."""
    pages: int | None = Field(default=None, gt=0)
    """Number of its page images. Without it: unknown."""
    scorer: str = ""
    """Program of its publisher that makes the official score, where no metric of hpcbench does."""
    scored_here: Literal["all", "parts", "nothing"] = "parts"
    """How much of the official score metrics give, where there is a `scorer`: `all`, by the program itself in
    an image; `parts` of it; or `nothing`: hpcbench refuses such run tasks, since their numbers would mean
    nothing, unless a judge of the plan rates their answers."""
    read: tuple[str, ...] = ()
    """Sources that this definition was written from, each with its revision."""
    unread: tuple[str, ...] = ()
    """Facts that could not be read at their source, so they may be wrong or are left out."""
    published: tuple[Published, ...] = ()
    """Scores that were published for it; reports show them beside those of the same model."""
