"""How much a last job asks for after one that died."""

from __future__ import annotations

from typing import Any

import pytest

from hpcbench.resume.last_job import grown, in_words
from hpcbench.schema.site import Site
from hpcbench.schema.work import JobResources
from tests.unit.small import resolved, run_task


@pytest.mark.parametrize(
    ("before", "end", "after"),
    [
        ((4, "01:00:00"), "OUT_OF_MEMORY", (8, "01:00:00")),
        ((20, "01:00:00"), "OUT_OF_MEMORY", (32, "01:00:00")),
        ((4, "00:40:45"), "TIMEOUT", (4, "01:21:30")),
        ((4, "13:00:05"), "DEADLINE", (4, "1-02:00:10")),
        ((4, "40:00:00"), "TIMEOUT", (4, "2-00:00:00")),
        ((4, "01:00:00"), "NODE_FAIL", (4, "01:00:00")),
    ],
)
def test_what_was_too_little_is_doubled_up_to_what_the_partition_has(
    before: tuple[float, str], end: str, after: tuple[float, str]
) -> None:
    partition: dict[str, Any] = {"memory_gb": 32, "time_limit": "2-00:00:00"}
    slurm = {"cpu_partition": "cpus", "partitions": {"cpus": partition}}
    site = Site.model_validate({"name": "default", "slurm": slurm})
    plan = resolved(run_task()).model_copy(update={"site": site})
    last = JobResources(cpus=1, memory_gb=before[0], time_limit=before[1])
    wanted = grown(last, end, plan)
    assert (wanted.memory_gb, wanted.time_limit) == after


@pytest.mark.parametrize(("cpus", "words"), [(1, "1 CPU"), (2, "2 CPUs")])
def test_resources_are_said_in_words(cpus: int, words: str) -> None:
    wanted = JobResources(cpus=cpus, memory_gb=1.5, time_limit="00:30:00")
    assert in_words(wanted) == f"{words}, 1.5 GB, 00:30:00"
