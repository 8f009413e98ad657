"""One sample in full: prompt, answer, references, and the account of each metric."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from hpcbench import number_format as form
from hpcbench.errors import DamagedFile
from hpcbench.evaluation.scoring import as_text
from hpcbench.experiment.view.answer import MISSING, Recorded
from hpcbench.experiment.view.scores import META, ScoresFiles, fields_of
from hpcbench.parsers.reasoning import strip_reasoning
from hpcbench.portal.asked_samples import Gone
from hpcbench.portal.context import Portal, is_here
from hpcbench.portal.faults import missing
from hpcbench.portal.image_regions import MOST, boxes_of, marked_on
from hpcbench.portal.json_safe import sound
from hpcbench.portal.logs import masked
from hpcbench.portal.media import Picture, Size, described, pictures_of
from hpcbench.portal.models.samples import (
    AnswerSource,
    MetricAccount,
    SampleDetail,
    SampleImage,
    Word,
)
from hpcbench.portal.sample_table import SampleTable
from hpcbench.portal.sample_turns import works_in_turns
from hpcbench.portal.samples import OrderedSamples, SampleFilter, SampleOrder, row_of
from hpcbench.reporting.worst_samples import compared_by_words, spread
from hpcbench.schema.records import ANSWERED, Sample

COMPARED = 20_000
"""Characters of an answer and a reference that are compared by words."""

MOST_FIELDS = 500
"""Most fields of an object that are listed."""


def detail_of(
    table: SampleTable, place: int, chosen: SampleFilter, ordered: SampleOrder
) -> SampleDetail:
    """All data of one sample.

    Args:
        table: the run task's samples.
        place: place of the sample.
        chosen, ordered: the list that defines the previous and the next sample.

    Raises:
        PortalFault: there is no such sample, or no such column.
        NotYet: a part of it is being computed.
    """
    (found,) = details_of(table, [place], chosen, ordered)
    return found


def details_of(
    table: SampleTable, places: Sequence[int], chosen: SampleFilter, ordered: SampleOrder
) -> list[SampleDetail]:
    """All data of several samples: one by one each of them costs a read of three files. See `detail_of`."""
    for place in places:
        table.check(place)
    order = OrderedSamples(table, chosen, ordered)
    rows = table.rows_at(places, _columns(table), whole=True)
    names = [row["sample"] for row in rows]
    recorded = table.recorded(dict(zip(places, names, strict=True)))
    fields = _fields(table, names)
    return [
        _detail(table, place, row, recorded.get(place), fields.get(row["sample"], []), order)
        for place, row in zip(places, rows, strict=True)
    ]


def _detail(
    table: SampleTable,
    place: int,
    row: Mapping[str, Any],
    recorded: Recorded | None,
    of_fields: Sequence[Mapping[str, Any]],
    order: OrderedSamples,
) -> SampleDetail:
    rank, before, after = order.around(place)
    sample, gone = _asked(table, place, row["sample"])
    notes = table.cache.flags.of(table.experiment.id, table.name)
    references = _references(row, sample)
    answer: str | None = row["answer"]
    thoughts, said = _split(answer)
    reasoning = recorded.response.reasoning if recorded is not None else None
    read = row.get("prediction")
    pieces: list[Any] = []
    left = 0, 0
    if references:
        compared = said if read is None else read
        reference, pieces = compared_by_words(references, compared, COMPARED)
        if compared is not None:
            left = _beyond(reference), _beyond(spread(compared))
    images = tuple(_images(table, place, sample))
    fields = {
        "note": notes.get(row["sample"], ""),
        "missing_images": gone
        or (None if sample is None or sample.images else "the sample has no image"),
        **_prompt(table, sample),
        "fields": {} if sample is None else dict(sample.fields),
        "metadata": _metadata(table, row, sample),
        "references": references,
        "answer": answer,
        "reasoning": thoughts if reasoning is None else reasoning,
        "prediction": read,
        "error": None if row.get("error") is None else masked(row["error"]),
        "raw": _raw(recorded, row),
    }
    return SampleDetail(
        row=row_of(
            table,
            place,
            {**row, "mistake": None} if _is_right(table, row) else row,
            None,  # the detail has it in full
            flagged=row["sample"] in notes,
        ),
        images=images,
        boxes=(*marked_on(sample, images), *boxes_of(_objects(references), answer))[:MOST],
        diff=tuple(Word(kind=kind, text=sound(text)) for kind, text in pieces),
        not_compared=left,
        accounts=tuple(_accounts(table, row, references, of_fields)),
        times=recorded.times if recorded else {},
        usage=recorded.usage if recorded else {},
        taken_from=_origin(table, recorded),
        rank=rank,
        previous=before,
        following=after,
        agent=works_in_turns(table),
        **{name: sound(value) for name, value in fields.items()},
    )


def picture_of(portal: Portal, table: SampleTable, place: int, number: int, size: Size) -> Picture:
    """An image of a sample.

    Args:
        portal: keeps small copies.
        table: the run task's samples.
        place: place of the sample.
        number: number of the image in the sample, from 0.
        size: `thumb` is a small copy.

    Raises:
        PortalFault: there is no such image, or it cannot be shown.
    """
    table.check(place)
    images = table.sample(place).images
    if number >= len(images):
        raise missing(f"the sample has {len(images)} images")
    return pictures_of(portal).of(table.run_task.dataset, images[number], size)


def _is_right(table: SampleTable, row: Mapping[str, Any]) -> bool:
    """Whether the leading metric gives its best score: what differs, such as case, is no mistake to it."""
    if not table.metrics:
        return False
    name = table.metrics[0]
    kind = table.kinds[name]
    return not kind.measures and kind.best is not None and row.get(name) == kind.best


def _beyond(text: str) -> int:
    return max(0, len(text) - COMPARED)


def _columns(table: SampleTable) -> list[str]:
    names = [
        "sample", "document", "outcome", "reason", "mistake", "answer", "prediction", "references", "error",
        "prompt", "form", "repairs", "faults", "invalid", "latency", "output_tokens",
    ]  # fmt: skip
    for metric in table.metrics:
        endings = ("", ".numerator", ".denominator", ".counts", ".fault")
        names += [metric + ending for ending in endings]
    return [*names, *(META + name for name in table.metadata)]


def _asked(table: SampleTable, place: int, name: str) -> tuple[Sample | None, str | None]:
    """The dataset's own sample; or the reason why it is not available."""
    try:
        return table.sample(place, name), None
    except Gone as gone:
        return None, str(gone)


def _references(row: Mapping[str, Any], sample: Sample | None) -> list[str]:
    texts = row.get("references")
    if texts is None and sample is not None:
        texts = [as_text(one) for one in sample.references]
    return [one for one in texts or () if one is not None]


def _objects(references: Sequence[str]) -> Iterator[Any]:
    """References that are objects."""
    for one in references:
        if one.startswith("{"):
            with suppress(ValueError, RecursionError):
                yield json.loads(one)


def _split(answer: str | None) -> tuple[str | None, str | None]:
    """The model's reasoning, and its answer after that."""
    if answer is None:
        return None, None
    said = strip_reasoning(answer)
    if said is None:
        return answer, None
    at = answer.rfind(said) if said and len(said) < len(answer) else -1
    thoughts = answer[:at].strip() if at > 0 else ""
    return thoughts or None, said


def _prompt(table: SampleTable, sample: Sample | None) -> dict[str, str | None]:
    """Texts of the prompt, built by the prompt's definitions."""
    if sample is None:
        return {"system": None, "prompt": None}
    try:
        messages = table.prompt.build(sample)
    except Exception:  # noqa: BLE001 - a foreign strategy: the rest is shown without its text
        return {"system": None, "prompt": None}
    system = "\n\n".join(one.text for one in messages if one.role == "system")
    others = [one for one in messages if one.role != "system"]
    texts = [one.text if len(others) == 1 else f"{one.role}: {one.text}" for one in others]
    return {"system": system or None, "prompt": "\n\n".join(texts)}


def _metadata(table: SampleTable, row: Mapping[str, Any], sample: Sample | None) -> dict[str, Any]:
    kept = {name: row.get(META + name) for name in table.metadata}
    return {**kept, **(dict(sample.metadata) if sample is not None else {})}


def _images(table: SampleTable, place: int, sample: Sample | None) -> list[SampleImage]:
    if sample is None:
        return []
    run_task, experiment = quote(table.name, safe=""), quote(table.experiment.id, safe="")
    below = f"experiments/{experiment}/run-tasks/{run_task}/samples/{place}/images"
    return [
        SampleImage(url=f"{below}/{number}", **facts)
        for number, facts in enumerate(described(table.run_task.dataset, sample.images))
    ]


def _origin(table: SampleTable, recorded: Recorded | None) -> AnswerSource | None:
    """Where an answer that was taken over comes from; None: this experiment asked."""
    source = recorded.response.reused_from if recorded is not None else None
    if source is None:
        return None
    names = {name: sound(source[name]) for name in ("experiment", "run_task", "sample")}
    return AnswerSource(**names, here=is_here(table.experiment.path.parent, names["experiment"]))


def _raw(recorded: Recorded | None, row: Mapping[str, Any]) -> dict[str, Any]:
    """The response as it was recorded, and how its answer was parsed."""
    read = {name: row.get(name) for name in ("form", "repairs", "faults") if row.get(name)}
    if recorded is None:
        return {"reading": read} if read else {}
    response = recorded.response
    record = replace(response, error=response.error and masked(response.error)).to_json()
    where = {"shard": recorded.shard, "attempt": recorded.attempt}
    return {**record, **where, **({"reading": read} if read else {})}


# --- what metrics say ---------------------------------------------------------------------------------------


def _accounts(
    table: SampleTable,
    row: Mapping[str, Any],
    references: Sequence[str],
    of_fields: Sequence[Mapping[str, Any]],
) -> Iterator[MetricAccount]:
    known = _of_metrics(of_fields, row, references)
    for name in table.metrics:
        kind = table.kinds[name]
        yield MetricAccount(
            metric=name,
            value=sound(row.get(name)),
            higher_is_better=kind.higher_is_better,
            signature=kind.signature,
            why=sound(_why(table, name, row, len(references))),
            fields=tuple(sound(known.get(name, ()))),
        )


def _why(table: SampleTable, name: str, row: Mapping[str, Any], references: int) -> str:
    """The comparison, numerator and denominator, or the reason for a missing value; in words."""
    value, fault = row.get(name), row.get(f"{name}.fault")
    if row["outcome"] == MISSING:
        return "The sample was not sent to the model yet."
    if fault:
        return f"The metric could not score the answer: {fault}. The sample does not count."
    counted = (
        "The sample does not count." if value is None else f"It counts as {form.value(value)}."
    )
    if row["outcome"] not in ANSWERED:
        return f"There is no answer: the outcome of the request is {row['outcome']}. {counted}"
    if row["reason"]:
        return f"The answer could not be read: {row['reason']}. {counted}"
    against = (
        f"the nearest of {references} acceptable answers" if references > 1 else "the reference"
    )
    intro = f"The prediction was compared with {against}: "
    counts = row.get(f"{name}.counts")
    if counts is not None:
        return f"{intro}{_counts(counts)}. The metric adds these up over the run; {_own(value)}"
    above, below = row.get(f"{name}.numerator"), row.get(f"{name}.denominator")
    if value is None or above is None or below is None:
        return f"{intro}a single sample has no value. {counted}"
    best = table.kinds[name].best
    mark = ", the best possible score" if best is not None and value == best else ""
    if below == 1 and above == value and not _is_ratio(table, name):
        return f"{intro}{form.value(value)}{mark}."
    parts = f"{_number(above)} ÷ {_number(below)} = {form.value(value)}{mark}"
    return (
        f"{intro}{parts}. A run's value is the sum of all numerators divided by the sum of all "
        "denominators."
    )


def _is_ratio(table: SampleTable, name: str) -> bool:
    metric = table.kinds[name].metric
    return metric is not None and metric.aggregation == "ratio"


def _own(value: float | None) -> str:
    return (
        "a single sample has no value."
        if value is None
        else f"for this sample alone the value is {form.value(value)}."
    )


def _number(value: float) -> str:
    return f"{value:g}"


def _counts(text: str) -> str:
    try:
        counts = json.loads(text)
    except ValueError:
        return "counts that cannot be read"
    some = [f"{name} {_number(one)}" for name, one in list(counts.items())[:12]]
    more = len(counts) - len(some)
    return ", ".join([*some, *([f"and {more} more"] if more > 0 else [])]) or "nothing to count"


def _fields(table: SampleTable, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Id of a sample → rows of its fields, at most `MOST_FIELDS`."""
    place = ScoresFiles(table.experiment.scores_dir, table.name)
    if not table.metrics:
        return {}
    try:
        frame = fields_of(place, names, MOST_FIELDS)
    except (OSError, DamagedFile):
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    for one in frame.iter_rows(named=True):
        found.setdefault(one["sample"], []).append(one)
    return found


def _of_metrics(
    of_fields: Sequence[Mapping[str, Any]], row: Mapping[str, Any], references: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Metric → its account of each field of the object."""
    known = next(_objects(references), None)
    said = next(_objects([row.get("prediction") or ""]), None)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in of_fields:
        below = one["denominator"]
        value = one["numerator"] / below if below else None
        found.setdefault(one["metric"], []).append(
            {
                "field": one["field"],
                "value": value,
                "reference": field_of(known, one["field"]),
                "answer": field_of(said, one["field"]),
            }
        )
    return found


def field_of(value: Any, path: str) -> str | None:
    """Value at a field's path, `seller.inn`, `items[].price`, as text; None: no value."""
    found: list[Any] = [value]
    name = path
    while name:
        if found and all(isinstance(one, Mapping) and name in one for one in found):
            found = [one[name] for one in found]
            break
        first, _, name = name.partition(".")
        listed = first.endswith("[]")
        first = first.removesuffix("[]")
        inner = [one[first] for one in found if isinstance(one, Mapping) and first in one]
        if listed:
            inner = [one for some in inner for one in (some if isinstance(some, list) else [some])]
        found = inner
    texts = [text for one in found if (text := as_text(one)) is not None]
    return " | ".join(texts)[:2_000] if texts else None
