"""The types that definitions and plans share; `hpcbench status` needs only these, not the definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field


def _some_time(text: str) -> str:
    if not any(digit in text for digit in "123456789"):
        raise ValueError("must be at least one second, such as 02:00:00")
    return text


TimeLimit = Annotated[
    str, Field(pattern=r"^(\d+-)?\d{1,2}:\d{2}:\d{2}$"), AfterValidator(_some_time)
]
"""A time as Slurm writes it, `[DAYS-]HH:MM:SS`, at least one second."""


def seconds(time_limit: str) -> int:
    """`[D-]HH:MM:SS` in seconds."""
    days, _, clock = time_limit.rpartition("-")
    hours, minutes, secs = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + secs


STRICT = ConfigDict(
    extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False, defer_build=True
)
"""Definitions are stored as JSON: no infinities, and options contain only JSON's types."""


class Part(BaseModel):
    """A nested block of a definition."""

    model_config = STRICT


def name_or(tag: str) -> Discriminator:
    """Chooses between a name and what is written out, a map; anything else is meant as a name."""
    return Discriminator(lambda entry: tag if isinstance(entry, Mapping | BaseModel) else "name")


class LastJob(Part):
    """Resources of the job after the workers, which evaluates the answers and writes the report."""

    cpus: int | None = Field(default=None, gt=0)
    """Its CPUs. Without it: the site profile's, else 1."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Its memory, GiB. Without it: the site profile's, else 4."""
    time_limit: TimeLimit | None = None
    """Its time limit, `[D-]HH:MM:SS`. Without it: the site profile's, else one hour."""


class Resources(Part):
    """Resources of one worker, in Slurm's terms."""

    cpus: int = Field(default=2, gt=0)
    """CPUs of one worker."""
    memory_gb: float = Field(default=8, gt=0)
    """Memory of one worker, GiB."""
    time_limit: TimeLimit = "02:00:00"
    """Time limit of one worker, `[D-]HH:MM:SS`."""
    partition: str | None = None
    """Partition. Without it: the site's."""
    gpu_type: str | None = None
    """Type of GPU in Slurm's notation, e.g. `a100`. Without it: the site's."""


class MetricFacts(Part):
    """Description of a metric that runs in an image: the host makes its tables without its code."""

    signature: str
    """Name, options and version."""
    higher_is_better: bool
    aggregation: Literal["mean", "ratio", "corpus"]
    """How samples become one number; the host needs the code of a `corpus` metric."""
    bounds: tuple[float, float | None]
    """Least and greatest value; None: no limit."""
    accepts: tuple[str, ...] = ()
    """Forms of answers that it scores; empty: any."""
    over_nothing: float | None = None
    """Value of a ratio whose denominators sum to 0; None: the sum of its numerators."""
    has_fields: bool = False
    """Whether it scores fields of objects, too."""
