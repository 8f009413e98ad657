"""Routes of a run task's samples: pages, facets, full samples, images, and the user's marks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Header, Path, Query, Request, Response

from hpcbench.errors import EnvironmentFault
from hpcbench.portal.context import Here, Portal
from hpcbench.portal.faults import PortalFault, bad_request
from hpcbench.portal.media import Picture
from hpcbench.portal.models.experiments import Facet
from hpcbench.portal.models.samples import Flag, SampleDetail, SamplePage, SampleRow, SampleTurns
from hpcbench.portal.routes import new_router
from hpcbench.portal.sample_detail import detail_of, picture_of
from hpcbench.portal.sample_table import SampleTable, sample_table_of
from hpcbench.portal.sample_turns import made_of, turns_of
from hpcbench.portal.samples import SampleFilter, SampleOrder, facets_of, named, page_of
from hpcbench.portal.slow_work import patiently

router = new_router("samples")

BELOW = "/experiments/{experiment}/run-tasks/{run_task}/samples"

AnswerT = TypeVar("AnswerT")

Id = Annotated[str, Path(max_length=200)]
Number = Annotated[int, Path(ge=0, le=10**9)]
Match = Annotated[str | None, Header(alias="If-None-Match", max_length=200)]


async def conditions(
    where: Annotated[list[str] | None, Query(max_length=8, description="`COLUMN:VALUE`.")] = None,
) -> tuple[tuple[str, str], ...]:
    """A request's conditions on metadata: columns and values."""
    pairs = []
    for one in where or ():
        name, colon, value = one.partition(":")
        if not colon or not name:
            raise bad_request("`where` has no colon", "give COLUMN:VALUE")
        pairs.append((name, value))
    return tuple(pairs)


Where = Annotated[tuple[tuple[str, str], ...], Depends(conditions)]


async def chosen_by(
    where: Where,
    text: Annotated[
        str, Query(max_length=500, description="Text in id, answer or references.")
    ] = "",
    outcome: Annotated[str, Query(max_length=40)] = "",
    reason: Annotated[str, Query(max_length=2_000)] = "",
    mistake: Annotated[
        str, Query(max_length=40, description="Kind of mistake, of wrong samples only.")
    ] = "",
    metric: Annotated[str, Query(max_length=200, description="Metric of `low` and `high`.")] = "",
    low: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    high: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    latency_over: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    wrong: Annotated[
        bool, Query(description="Below the best score, unreadable or failed.")
    ] = False,
    flagged: Annotated[bool, Query(description="Flagged by the user.")] = False,
) -> SampleFilter:
    """A request's filter of samples."""
    return SampleFilter(
        text, outcome, reason, mistake, metric, low, high, latency_over, where, wrong, flagged
    )


async def sorted_by(
    sort: Annotated[str, Query(max_length=200, description="A column or metric.")] = "place",
    order: Literal["asc", "desc"] = "asc",
) -> SampleOrder:
    """A request's order of samples."""
    return SampleOrder(sort, order)


Choice = Annotated[SampleFilter, Depends(chosen_by)]
Ordering = Annotated[SampleOrder, Depends(sorted_by)]


async def answered(
    portal: Portal,
    request: Request,
    names: tuple[str, str],
    match: str | None,
    make: Callable[[SampleTable], AnswerT],
) -> AnswerT | Response:
    """An answer about the samples of a run task; 304 if the client already has it."""

    def work() -> tuple[AnswerT | None, str]:
        table = sample_table_of(portal, *names)
        marks = table.cache.flags.of(table.experiment.id, table.name)
        parts = (table.version, sorted(marks.items()), request.url.path, request.url.query)
        tag = f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:24]}"'
        return (None if tag == match else make(table)), tag

    found, tag = await patiently(work)
    if found is None:
        return Response(status_code=304, headers={"ETag": tag})
    request.state.tag = tag
    return found


@router.get(BELOW, response_model=SamplePage, operation_id="listSamples")
async def samples(
    portal: Here, request: Request, response: Response, experiment: Id, run_task: Id,
    chosen: Choice, ordered: Ordering,
    after: Annotated[str | None, Query(max_length=4_000)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    skip: Annotated[int, Query(ge=0, le=10**9, description="Rows to skip; only without `after`.")] = 0,
    match: Match = None,
) -> Any:  # fmt: skip
    """A page of samples; samples that were not sent yet are `missing`."""

    def make(table: SampleTable) -> SamplePage:
        return page_of(table, chosen, ordered, after, limit, skip)

    return _tagged(
        request, response, await answered(portal, request, (experiment, run_task), match, make)
    )


@router.get(f"{BELOW}/facets", response_model=tuple[Facet, ...], operation_id="sampleFacets")
async def facets(
    portal: Here, request: Request, response: Response, experiment: Id, run_task: Id,
    chosen: Choice, match: Match = None,
) -> Any:  # fmt: skip
    """Number of the chosen samples for each outcome, reason, mistake, score and value of metadata."""

    def make(table: SampleTable) -> tuple[Facet, ...]:
        return facets_of(table, chosen)

    return _tagged(
        request, response, await answered(portal, request, (experiment, run_task), match, make)
    )


@router.get(f"{BELOW}/named", operation_id="samplesNamed")
async def named_so(
    portal: Here, experiment: Id, run_task: Id,
    text: Annotated[str, Query(min_length=1, max_length=200, description="Text in the id.")],
    limit: Annotated[int, Query(ge=1, le=20)] = 5,
) -> tuple[SampleRow, ...]:  # fmt: skip
    """Samples whose id contains the text, the best match first."""
    return await patiently(
        lambda: named(sample_table_of(portal, experiment, run_task), text, limit)
    )


@router.get(f"{BELOW}/{{place:int}}", operation_id="getSample")
async def sample(
    portal: Here, experiment: Id, run_task: Id, place: Number, chosen: Choice, ordered: Ordering
) -> SampleDetail:
    """One sample in full; `previous` and `following` are its neighbours among the chosen ones."""
    return await patiently(
        lambda: detail_of(sample_table_of(portal, experiment, run_task), place, chosen, ordered)
    )


@router.get(
    f"{BELOW}/{{place:int}}/images/{{number:int}}",
    operation_id="getSampleImage",
    response_class=Response,
    responses={200: {"content": {"image/*": {}}}},
)
def image(
    portal: Here, experiment: Id, run_task: Id, place: Number, number: Number,
    size: Literal["thumb", "full"] = "full", match: Match = None,
) -> Response:  # fmt: skip
    """An image of a sample; `thumb` is a small copy."""
    picture = picture_of(portal, sample_table_of(portal, experiment, run_task), place, number, size)
    return _shown(picture, match)


@router.get(f"{BELOW}/{{place:int}}/turns", operation_id="getSampleTurns")
async def turns(portal: Here, experiment: Id, run_task: Id, place: Number) -> SampleTurns:
    """An agent's work on a sample, turn by turn."""
    return await patiently(lambda: turns_of(sample_table_of(portal, experiment, run_task), place))


@router.get(
    f"{BELOW}/{{place:int}}/made/{{number:int}}",
    operation_id="getMadeImage",
    response_class=Response,
    responses={200: {"content": {"image/*": {}}}},
)
def made(
    portal: Here, experiment: Id, run_task: Id, place: Number, number: Number,
    size: Literal["thumb", "full"] = "full", match: Match = None,
) -> Response:  # fmt: skip
    """An image that an agent's tool made, from 0; `thumb` is a small copy."""
    return _shown(
        made_of(portal, sample_table_of(portal, experiment, run_task), place, number, size), match
    )


def _shown(picture: Picture, match: str | None) -> Response:
    headers = {"ETag": f'"{picture.tag}"', "Cache-Control": "private, max-age=3600"}
    if match == headers["ETag"]:
        return Response(status_code=304, headers=headers, media_type=picture.kind)
    return Response(picture.data, media_type=picture.kind, headers=headers)


@router.put(f"{BELOW}/{{place:int}}/flag", operation_id="flagSample")
def flag(
    portal: Here, experiment: Id, run_task: Id, place: Number, mark: Flag | None = None
) -> Flag:
    """Flag a sample, with a note if there is one; `flagged: false` removes the flag."""
    return _mark(portal, (experiment, run_task), place, mark or Flag(flagged=True))


@router.delete(f"{BELOW}/{{place:int}}/flag", operation_id="unflagSample")
def unflag(portal: Here, experiment: Id, run_task: Id, place: Number) -> Flag:
    """Remove the flag of a sample."""
    return _mark(portal, (experiment, run_task), place, Flag(flagged=False))


def _mark(portal: Portal, names: tuple[str, str], place: int, mark: Flag) -> Flag:
    table = sample_table_of(portal, *names)
    table.check(place)
    (row,) = table.rows_at([place], ["sample", "outcome", "answer"])
    flags = table.cache.flags
    key = (table.experiment.id, table.name, row["sample"])
    try:
        if mark.flagged:
            flags.mark(*key, mark.note)
        else:
            flags.unmark(*key)
    except EnvironmentFault as fault:
        raise PortalFault(500, "unwritable", fault.message, fault.remedy or "") from fault
    except OSError as error:
        what = f"the flag could not be written: {error.strerror}"
        raise PortalFault(507, "unwritable", what) from error
    return Flag(flagged=mark.flagged, note=mark.note if mark.flagged else "")


def _tagged(request: Request, response: Response, found: Any) -> Any:
    if not isinstance(found, Response):
        response.headers["ETag"] = request.state.tag
    return found
