"""Contract tests for plugin authors: does a plugin keep the promises that every caller relies on?

    from hpcbench.testing import check

    def test_contract(tmp_path):
        check("metrics", AmountMatch, tmp_path)

`hpcbench plugins check FOLDER` runs the same on a whole package. A plugin that needs options or data has a
static method `example(folder) -> Mapping`, which writes the data into an empty folder and returns the options
(datasets: the fields of `DatasetSpec`; storage: its options and a `url`; tools: `arguments`, `images`,
`options`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hpcbench import plugins
from hpcbench.errors import HpcbenchError, UserError
from hpcbench.metrics.base import outside, value_of
from hpcbench.plugins import DatasetSpec, EngineSpec, Limits, PromptSpec, ToolContext, ToolError
from hpcbench.schema.records import Message, Reading, Sample

ANSWERS = (
    "", " ", "12.50", "Yes.", "Итого: 12,50 ₽", '{"total": "12.50"}', "```json\n{}\n```", "{" * 2000,
    "total: 12.50\ndate: 2024-01-02", "\x00\ud7ff\u202e", "x" * 20_000, "| a | b |\n|---|---|\n| 1 | 2 |",
)  # fmt: skip
"""Answers of models, good and bad."""

LONG = "The total amount that is due on the invoice of May is 12.50 euro"
"""A text that is long enough for metrics of several words."""

OF_KIND: Mapping[str, object] = {
    "text": "Total 12.50",
    "label": "invoice",
    "object": {"total": "12.50", "date": "2024-01-02"},
    "reading": Reading({"total": "12.50", "date": "2024-01-02"}, form="json", required=2, found=2),
}
"""A prediction for each output of an ML task, and a reading."""

TABLES: Mapping[str, Any] = {
    "version": 2,
    "id": "20260101-1200-example-abcd",
    "path": "/nowhere/20260101-1200-example-abcd",
    "state": "done",
    "reason": "",
    "plan": {"name": "example", "description": "An example.", "min_coverage": 0.5},
    "asked": 4,
    "responded": 3,
    "ok": 3,
    "unreadable": 0,
    "failed": 1,
    "answered": 3,
    "left": 0,
    "reused": {},
    "reused_times": False,
    "summary": ["m reaches anls 0.500 [0.250, 0.750] on d. Only 75.0 % of samples on d are ok."],
    "verdict": None,
    "arms": None,
    "leaders": [
        {
            "ml_task": "vqa", "dataset": "d", "split": None, "metric": "anls",
            "higher_is_better": True, "run_task": "vqa", "model": "m", "value": 0.5, "low": 0.25,
            "high": 0.75, "coverage": 0.75, "rivals": [],
        },
    ],
    "matrix": [
        {
            "ml_task": "vqa", "metric": "anls", "unit": "", "higher_is_better": True, "primary": True,
            "columns": [{"dataset": "d", "split": None}],
            "rows": [
                {
                    "model": "m", "variant": "",
                    "cells": [
                        {
                            "run_task": "vqa", "value": 0.5, "low": 0.25, "high": 0.75, "n": 4,
                            "documents": 4, "coverage": 0.75, "leads": False,
                        },
                    ],
                },
            ],
        },
    ],
    "published": [],
    "metrics": {
        "version": 2,
        "run_tasks": {
            "vqa": {
                "ml_task": "vqa", "model": "m", "dataset": "d", "split": None, "prompt": "p",
                "on_failed": "zero", "on_invalid": "exclude", "asked": 4, "responded": 3, "ok": 3,
                "unreadable": 0, "failed": 1, "answered": 3,
                "documents": 3, "invalid": 0, "invalid_reasons": [], "skipped": 0, "coverage": 0.75,
                "wrong": 2, "mistakes": {"digit dropped": 1},
                "outcomes": {"failed": 1, "ok": 3}, "faults": [], "groups": [],
                "errors": [
                    {"outcome": "failed", "message": "no <b>answer</b> | & none", "count": 1, "sample": "s4"},
                ],
                "metrics": {
                    "anls": {
                        "value": 0.5, "low": 0.25, "high": 0.75, "level": 0.95, "n": 4, "clusters": 4,
                        "method": "mean", "average": "micro", "signature": "anls|v1",
                        "higher_is_better": True, "invalid": 0, "faults": 0, "value_if": None,
                    },
                    "=1+1": None,
                },
            }
        },
    },
    "performance": {
        "version": 2,
        "run_tasks": {
            "vqa": {
                "load": {
                    "concurrency": 1, "rate": None, "arrival": None, "warm_up": 0, "sweep": None,
                    "chosen": None,
                },
                "requests": 4, "answered": 3, "tries": 5, "ttft_ms": None, "tpot_ms": None,
                "e2e_ms": None, "ttft_due_ms": None, "e2e_due_ms": None, "queue_ms": None,
                "window": {"seconds": 0.0, "answers": 0, "in_flight": None, "pieces": 1},
                "answers_per_s": None, "tokens_per_s": None, "good_per_s": None, "attainment": None,
                "prompt_tokens": 40, "completion_tokens": 12, "client": None, "memory": None,
                "hardware": None, "valid": True, "notes": ["no steady rates: too few answers"],
            },
        },
        "sweeps": {},
    },
    "worst": {
        "vqa": [
            {
                "sample": "s2", "document": "d2", "place": 1, "metric": "anls", "score": 0.0,
                "outcome": "ok", "prompt": "Total?", "images": ["page.png"],
                "answer": "<script>=1+1</script>", "reference": "12.50", "others": 0,
                "diff": [["lost", "12.50"], ["added", "<script>=1+1</script>"]], "cut": False,
            },
        ],
    },
    "distribution": {
        "vqa": {"metric": "anls", "low": 0.0, "high": 1.0, "counts": [2, *[0] * 18, 2]},
    },
    "usage": None,
    "per_document": {},
    "currency": "",
    "baseline": None,
    "provenance": {
        "facts": [["hpcbench", "0"], ["created", "2026-01-01T12:00:00+0000 on login1"]],
        "reproduce": "hpcbench submit /nowhere/20260101-1200-example-abcd/plan.yaml",
    },
    "manifest": {"version": 1, "hpcbench": "0", "created": "2026-01-01T12:00:00+0000"},
}  # fmt: skip
"""Tables for reports and trackers, by `registries/schemas/report.json`; a metric may have no value,
and names and answers may be hostile.
"""

EVENT: Mapping[str, Any] = {
    "id": "20260101-1200-example-abcd.end-0-done",
    "plan": "example",
    "experiment": "20260101-1200-example-abcd",
    "state": "done",
    "report": "/nowhere/report",
    "summary": "example <is> done: vqa anls 0.500 & more",
    "time": "2026-01-01T12:00:00+0000",
}

VERDICT: Mapping[str, Any] = {
    "version": 1,
    "baseline": "20251231-1200-example-aaaa",
    "candidate": "20260101-1200-example-abcd",
    "policy": "default",
    "verdict": "NO-GO",
    "reasons": ["vqa anls: worse by more than the margin"],
    "checks": [
        {
            "run_task": "vqa", "what": "anls", "kind": "quality", "level": "critical",
            "baseline": 0.8125, "candidate": 0.5, "difference": -0.3125, "low": -0.5, "high": -0.125,
            "margin": 0.01, "verdict": "fail", "why": "worse by more than the margin",
        },
        {
            "run_task": "vqa", "what": "=1+1", "kind": "quality", "level": "advisory",
            "baseline": None, "candidate": None, "difference": None, "low": None, "high": None,
            "margin": None, "verdict": "inconclusive", "why": "<b>no</b> value | & no interval",
        },
        {
            "run_task": "vqa", "what": "tokens_per_second", "kind": "speed", "level": "critical",
            "baseline": 100.0, "candidate": 101.0, "difference": 1.0, "low": None, "high": None,
            "margin": 5.0, "verdict": "pass", "why": "",
        },
    ],
}  # fmt: skip
"""A verdict in the form of `report/verdict.json`; figures may have no value, and names may be hostile."""


def check(kind: str, plugin: Any, folder: Path) -> None:
    """Run every contract test of a kind.

    Args:
        kind: datasets, engines, metrics, …
        plugin: the class.
        folder: an empty folder to work in.

    Raises:
        AssertionError: a contract that the plugin breaks.
    """
    wrong = plugins.mismatch(kind, plugin)
    assert wrong is None, f"{plugin!r} {wrong}"
    for test in _CONTRACTS[kind]:
        room = folder / test.__name__.strip("_")
        room.mkdir(parents=True)
        test(plugin, room)


def contracts(kind: str) -> Iterator[tuple[str, Callable[[Any, Path], None]]]:
    """Each contract test of a kind, with its one-line description."""
    for test in _CONTRACTS[kind]:
        yield (test.__doc__ or "").splitlines()[0].rstrip("."), test


def _example(plugin: Any, folder: Path) -> Mapping[str, Any]:
    if hasattr(plugin, "example"):
        found: Mapping[str, Any] = plugin.example(folder)
        return found
    return {}


def _sample(**more: Any) -> Sample:
    image = Path("page.png")
    known: dict[str, Any] = {
        "id": "s1", "images": (image,), "fields": {"question": "Total?"}, "references": ("12.50",),
        "document": "d1", "metadata": {"language": "en", "doc_type": "invoice"},
    }  # fmt: skip
    return Sample(**{**known, **more})


# --- metrics --------------------------------------------------------------------------------------------


def _accepts(plugin: Any) -> tuple[str, ...]:
    """Forms of predictions that a metric accepts."""
    found = getattr(plugin, "accepts", ("text",))
    known = ", ".join(OF_KIND)
    assert isinstance(found, (tuple, list, frozenset)) and set(found) <= set(OF_KIND), (
        f"accepts is {found!r}; it must be a tuple of some of {known}, such as ('text',)"
    )
    return tuple(found)


def _right_is_best(plugin: Any, folder: Path) -> None:
    """The reference itself gets the best score, and some other prediction another."""
    for kind in _accepts(plugin):
        metric, right = plugin(**_example(plugin, folder)), OF_KIND[kind]
        best = metric.aggregate([metric.score(right, [right])])
        worst = metric.aggregate([metric.score(None, [right])])
        ordered = worst <= best if metric.higher_is_better else best <= worst
        assert ordered, f"{right!r} scores {best}, but no prediction scores {worst}"
        low, high = metric.bounds
        assert low <= best and (high is None or best <= high), f"{best} is outside {metric.bounds}"
        if kind != "reading":
            assert _tells_apart(metric, right) or _tells_apart(metric, right, LONG), (
                f"every prediction scores {best}: the metric tells none apart"
            )


def _tells_apart(metric: Any, right: Any, other: str | None = None) -> bool:
    """Whether a prediction has another score than the reference itself; `other`: a long text in its place."""
    if other is not None and isinstance(right, str):
        right = other
    references = [right] * 10  # some metrics count how many people gave an answer
    wrong = (*ANSWERS, None, {"total": "9"}, {"other": "1", **_as_object(right)})
    scores = {metric.aggregate([metric.score(one, references)]) for one in (right, *wrong)}
    return len(scores) > 1


def _as_object(right: Any) -> Mapping[str, Any]:
    return right if isinstance(right, Mapping) else {}


def _scores_anything(plugin: Any, folder: Path) -> None:
    """It scores any prediction without an exception, inside its bounds."""
    for kind in _accepts(plugin):
        metric = plugin(**_example(plugin, folder))
        cases: list[tuple[Any, Any]]
        cases = [(one, OF_KIND[kind]) for one in (*ANSWERS, None, 7, {"total": None}, ["x"])]
        if kind in ("text", "label"):
            cases += [(OF_KIND[kind], reference) for reference in ("", "—", "Итого")]
        for prediction, reference in cases:
            part = metric.score(prediction, [reference])
            wrong = outside(metric, value := value_of(metric, part))
            assert not wrong, f"{prediction!r:.40} scores {value:g}, {wrong}"
            if metric.aggregation == "corpus":
                assert all(isinstance(one, (int, float)) for one in part.values()), (
                    f"score() returns {part!r}; its values must be numbers"
                )
                continue
            assert isinstance(part.numerator, (int, float)), (
                f"the numerator is {part.numerator!r}, not a number"
            )
            assert isinstance(part.denominator, (int, float)), (
                f"the denominator is {part.denominator!r}, not a number"
            )


def _aggregates_in_any_order(plugin: Any, folder: Path) -> None:
    """Samples in another order give the same aggregate."""
    for kind in _accepts(plugin):
        metric, right = plugin(**_example(plugin, folder)), OF_KIND[kind]
        parts = [metric.score(one, [right]) for one in (right, None, right, "")]
        values = {metric.aggregate(list(order)) for order in itertools.permutations(parts)}
        assert len(values) == 1, f"the same samples have different aggregates: {sorted(values)}"


def _signs(plugin: Any, folder: Path) -> None:
    """The signature names metric and version, and distinguishes options."""
    example = dict(_example(plugin, folder))
    metric = plugin(**example)
    for option, value in _other_options(plugin, example):
        with contextlib.suppress(ValueError, TypeError, HpcbenchError):  # it refuses this value
            other = plugin(**{**example, option: value}).signature
            assert other != metric.signature, (
                f"with {option}={value!r} the signature is '{other}', too: put the option into it"
            )
    assert metric.signature.startswith(plugin.name), (
        f"signature '{metric.signature}' must start with '{plugin.name}'"
    )
    assert "|v" in metric.signature, (
        f"signature '{metric.signature}' must end with a version, `|v1`"
    )
    assert metric.aggregation in ("mean", "ratio", "corpus"), (
        f"aggregation is {metric.aggregation!r}; it must be mean, ratio or corpus"
    )


def _other_options(plugin: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Options of a metric that is a dataclass, each with another value of its kind."""
    if not dataclasses.is_dataclass(plugin):
        return
    hints = get_type_hints(plugin)
    for one in dataclasses.fields(plugin):
        default = given.get(one.name, one.default)
        choices = [value for value in get_args(hints.get(one.name)) if value != default]
        if one.name == "compat":  # two kits may compute the same
            continue
        if get_origin(hints.get(one.name)) is Literal:
            yield from ((one.name, value) for value in choices)
        elif isinstance(default, bool):
            yield one.name, not default
        elif isinstance(default, (int, float)):
            yield from (
                (one.name, type(default)(value))
                for value in (default + 1, default / 2)
                if value != default
            )


# --- parsers, tasks -------------------------------------------------------------------------------------


def _reads_anything(plugin: Any, folder: Path) -> None:
    """It reads or refuses any answer without an exception, twice the same."""
    _wants_what_there_is(plugin)
    for answer in ANSWERS:
        assert plugin().parse(answer) == plugin().parse(answer), (
            f"{answer[:20]!r} gives two different predictions"
        )


def _reads_anything_of_a_sample(plugin: Any, folder: Path) -> None:
    """It reads or refuses any answer without an exception, twice the same."""
    _wants_what_there_is(plugin)
    for answer in ANSWERS:
        once, again = (plugin().parse(answer, _sample()) for _ in range(2))
        assert once == again, f"{answer[:20]!r} gives two different predictions"


def _wants_what_there_is(plugin: Any) -> None:
    wants = getattr(plugin, "wants", "text")
    assert wants in ("text", "label", "object"), (
        f"wants is {wants!r}; it must be text, label or object"
    )


# --- prompts --------------------------------------------------------------------------------------------


def _builds_messages(plugin: Any, folder: Path) -> None:
    """Messages contain text, the last is the user's, and every image occurs once."""
    options = _example(plugin, folder)
    strategy = plugin(PromptSpec("What does it say?", "You read documents.", options=options))
    for images in ((Path("a.png"),), (Path("a.png"), b"bytes"), ()):
        messages = strategy.build(_sample(images=images))
        assert messages and messages[-1].role == "user", "the last message is not the user's"
        assert all(isinstance(one, Message) and isinstance(one.text, str) for one in messages)
        shown = tuple(image for message in messages for image in message.images)
        assert shown == images, f"images {images} became {shown}"


# --- datasets -------------------------------------------------------------------------------------------


def _iterates(plugin: Any, folder: Path) -> None:
    """Samples are counted, sliced and come in one order, with references and unique ids."""
    spec = DatasetSpec(**{"folder": folder, "annotations": "", **_example(plugin, folder)})
    count = plugin(spec).count()
    samples = list(plugin(spec).iter(0, count))
    assert count == len(samples) > 0, (
        f"count() returns {count}, but iter() gives {len(samples)} samples"
    )
    assert samples == list(plugin(spec).iter(0, count)), (
        "a second iterator gives other samples or another order"
    )
    assert samples[1:2] == list(plugin(spec).iter(1, 2)), "iter(1, 2) is not the second sample"
    assert len({sample.id for sample in samples}) == count, "two samples have the same id"
    assert all(sample.references and sample.images for sample in samples), (
        "a sample has no reference or no image"
    )
    assert all(sample.document for sample in samples), "a sample has no document"


def _names_its_files(plugin: Any, folder: Path) -> None:
    """files() names every file that it reads; each file exists in its folder."""
    spec = DatasetSpec(**{"folder": folder, "annotations": "", **_example(plugin, folder)})
    files = set(plugin(spec).files())
    assert files, "files() is empty, so hpcbench cannot hash the dataset"
    for path in files:
        assert path.is_file() and path.is_relative_to(spec.folder), (
            f"{path} is not a file in the folder"
        )
    with _opened() as opened:
        samples = list(plugin(spec).iter(0, plugin(spec).count()))
    top = spec.folder.resolve()
    inside = {path for path in opened if path.is_relative_to(top) and path.is_file()}
    for read, why in (
        (
            {one for sample in samples for one in sample.images if isinstance(one, Path)},
            "samples use",
        ),
        (inside, "it reads: a change there would go unnoticed"),
    ):
        missing = {path.resolve() for path in read} - {path.resolve() for path in files}
        names = ", ".join(sorted(os.path.relpath(path, top) for path in missing))
        assert not missing, f"files() does not contain {names}, which {why}"


_OPENED: list[set[Path]] = []
"""Sets that receive the path of every file that this process opens for reading."""


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _OPENED and isinstance(arguments[0], str | bytes):
        path = Path(os.fsdecode(arguments[0]))
        for heard in _OPENED:
            heard.add(path.resolve())


@functools.cache
def _hear_files() -> None:
    """Let `_hear` know of opened files; Python never removes such a hook."""
    sys.addaudithook(_hear)


@contextlib.contextmanager
def _opened() -> Iterator[set[Path]]:
    """The files that are opened in the block, as far as Python opens them."""
    _hear_files()
    heard = set[Path]()
    _OPENED.append(heard)
    try:
        yield heard
    finally:
        _OPENED.remove(heard)


# --- engines, environments ------------------------------------------------------------------------------


def _spec(options: Mapping[str, Any]) -> EngineSpec:
    return EngineSpec("/models/m", "m", "/tmp/engine.sock", options=options)  # noqa: S108 - a name only


def _commands(plugin: Any, folder: Path) -> None:
    """The command is an argument list that names the socket."""
    command = plugin().launch_command(_spec(_example(plugin, folder)))
    words = [*command.argv, *command.env.values()]
    assert all(isinstance(word, str) for word in words), "an argument is not text"
    assert any("/tmp/engine.sock" in word for word in words), "the command does not name the socket"  # noqa: S108
    if hasattr(plugin, "limits"):
        limits = plugin().limits(_spec(_example(plugin, folder)))
        assert isinstance(limits, Limits), "limits(spec) does not return Limits"


def _batches(plugin: Any, folder: Path) -> None:
    """The number for `concurrency: auto`, if it gives one, is a whole number above 0."""
    if hasattr(plugin, "at_once"):
        for gpus in (0, 1):
            found = plugin().at_once(_example(plugin, folder), gpus)
            assert isinstance(found, int), f"at_once() returns {found!r}, not a whole number"
            assert found > 0, f"at_once() returns {found!r}, not a number above 0"


def _refuses_unknown_options(plugin: Any, folder: Path) -> None:
    """It refuses an unknown option, or passes it to the engine in the command."""
    try:
        command = plugin().launch_command(_spec({"no_such_option_at_all": 1}))
    except UserError:
        return
    passed = any("no" in word and "such" in word and "option" in word for word in command.argv)
    assert passed, "it ignores an unknown option silently"


# --- reports, trackers, notifiers, storage --------------------------------------------------------------


def _renders(plugin: Any, folder: Path) -> None:
    """Files have plain names and content, and are the same for the same tables."""
    options = _example(plugin, folder)
    files = plugin(options).render(TABLES)
    assert files, "render() returns no file"
    for name, content in files.items():
        assert name and Path(name).name == name, f"'{name}' is not a plain file name"
        assert isinstance(content, (str, bytes)) and content, f"'{name}' is empty"
    assert files == plugin(options).render(TABLES), (
        "a second render() of the same tables gives other bytes"
    )


def _logs(plugin: Any, folder: Path) -> None:
    """It logs scores, also one without a value, and a second time without harm."""
    options = _example(plugin, folder)
    plugin(options).log(TABLES)
    plugin(options).log({**TABLES, "id": "20260101-1300-example-efgh"})


def _sends(plugin: Any, folder: Path) -> None:
    """It sends both ends of an experiment, and the verdict of a gate."""
    options = _example(plugin, folder)
    plugin(options).send(EVENT)
    plugin(options).send({**EVENT, "state": "incomplete", "report": None})
    plugin(options).send({**EVENT, "state": "regression", "verdict": VERDICT})


def _stores(plugin: Any, folder: Path) -> None:
    """It lists a stored file with its size, reads it unchanged, whole and in part, and marks a change."""
    example = dict(_example(plugin, folder))
    url = example.pop("url")
    storage = plugin(example)
    data, source = bytes(range(256)) * 20, folder / "source.bin"
    source.write_bytes(data)
    storage.put(source, url, "a/b.bin")
    listed = {file.path: file for file in storage.list(url)}
    file = listed.get("a/b.bin")
    assert file is not None and file.size == len(data), (
        f"list() returns {listed}, without the stored file or with another size"
    )
    assert b"".join(storage.read(url, file, 0, len(data))) == data, "read() gives other bytes"
    assert b"".join(storage.read(url, file, 300, 1000)) == data[300:1000], (
        "read() of a part gives other bytes"
    )
    time.sleep(1.1)  # some servers give times of change in seconds
    source.write_bytes(data[::-1])
    storage.put(source, url, "a/b.bin")
    (again,) = [one for one in storage.list(url) if one.path == "a/b.bin"]
    assert not file.mark or again.mark != file.mark, (
        f"changed content has the same mark {file.mark}"
    )
    assert b"".join(storage.read(url, again, 0, again.size)) == data[::-1], (
        "read() gives other bytes"
    )
    try:
        gone = dataclasses.replace(file, path="no/such.bin")
        read = b"".join(storage.read(url, gone, 0, 1))
    except OSError:
        return
    raise AssertionError(f"read() of a missing file returns {read!r} instead of raising an OSError")


# --- tools ----------------------------------------------------------------------------------------------


def _describes(plugin: Any, folder: Path) -> None:
    """A model learns from its docstring what it does, and from the schema what it takes."""
    from hpcbench.agents.tool_process import described

    assert isinstance(plugin.idempotent, bool), f"idempotent is {plugin.idempotent!r}, not a bool"
    assert hasattr(plugin.Arguments, "model_validate"), "Arguments is not a pydantic model"
    spec = described("tool", plugin, {}, plugin.__module__)
    assert spec["schema"].get("type") == "object", (
        "the schema of Arguments is not that of an object"
    )
    text = json.dumps(spec["schema"])
    assert text == json.dumps(described("tool", plugin, {}, "")["schema"]), (
        "the schema of Arguments differs from one time to the next"
    )


def _calls(plugin: Any, folder: Path) -> None:
    """It returns text or images for its example, twice if it is idempotent, and a clear refusal otherwise."""
    from hpcbench.agents.tool_process import result_of

    example = _example(plugin, folder)
    tool = plugin(example.get("options", {}))
    context = ToolContext(tuple(example.get("images", ())), folder)
    wanted = example.get("arguments")
    assert wanted is not None, (
        "write a static method example(folder) that returns {'arguments': …}, and images or options if "
        "it needs some"
    )
    with contextlib.chdir(folder) if hasattr(contextlib, "chdir") else contextlib.nullcontext():
        arguments = plugin.Arguments.model_validate(wanted)
        first = tool.call(arguments, context)
        kind, text, images = result_of(first)
        assert kind == "ok", text
        if plugin.idempotent:
            assert result_of(tool.call(arguments, context))[0] == "ok", "a second call fails"
    refusal = _refusal(tool, arguments, folder)
    assert refusal is None or refusal, "it refuses a call without images without saying why"


def _refusal(tool: Any, arguments: Any, folder: Path) -> str | None:
    """Why a tool refuses a call without images; None: it does not."""
    try:
        tool.call(arguments, ToolContext((), folder))
    except ToolError as refused:
        return str(refused)
    return None


_CONTRACTS: Mapping[str, tuple[Callable[[Any, Path], None], ...]] = {
    "datasets": (_iterates, _names_its_files),
    "engines": (_commands, _batches, _refuses_unknown_options),
    "environments": (),
    "metrics": (_right_is_best, _scores_anything, _aggregates_in_any_order, _signs),
    "notifiers": (_sends,),
    "parsers": (_reads_anything,),
    "prompts": (_builds_messages,),
    "reports": (_renders,),
    "storage": (_stores,),
    "tasks": (_reads_anything_of_a_sample,),
    "tools": (_describes, _calls),
    "trackers": (_logs,),
}
