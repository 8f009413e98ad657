"""Verbs about metrics: list, show, score."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.files.user import open_file

ROUNDED = 6
"""Digits of a printed value; JSON has all."""


def list_metrics(arguments: argparse.Namespace) -> int:
    """`hpcbench metrics list`."""
    rows, broken = [], []
    for name in sorted(plugins.available("metrics")):
        try:
            rows.append(_brief(name))
        except EnvironmentFault as fault:
            broken.append(str(fault))
    from hpcbench.registry.catalog import Catalog
    from hpcbench.registry.resolve import packaged

    rows += [
        {"name": name, "from": f"packages/{package}", "text": "", **dict.fromkeys(_OF_CLASS)}
        for name, package in sorted(packaged(Catalog(arguments.registry), "metrics").items())
        if name not in plugins.available("metrics")
    ]
    if arguments.json:
        from hpcbench.cli.output import print_json

        print_json(rows)
        return 0
    from hpcbench.cli.output import console, say, table

    shown = table("metric", "best", "aggregation", "answers", "definition")
    for row in rows:
        if row["accepts"] is None:
            text = f"in {row['from']}: `hpcbench metrics show {row['name']}` builds it"
            shown.add_row(row["name"], "–", "–", "–", text, style="dim")
            continue
        best = "highest" if row["higher_is_better"] else "lowest"
        shown.add_row(row["name"], best, row["aggregation"], ", ".join(row["accepts"]), row["text"])
    console().print(shown)
    for line in broken:
        say(line)
    return 0


def show(arguments: argparse.Namespace) -> int:
    """`hpcbench metrics show NAME`."""
    from hpcbench.metrics.kits import Dialect

    plugin, options = _found(arguments)
    kind = plugins.load("metrics", plugin)
    dialects = getattr(kind, "dialects", {})
    details = {
        **_brief(plugin),
        "bounds": list(kind.bounds),
        "definition": inspect.getdoc(kind) or "",
        "module": inspect.getdoc(inspect.getmodule(kind)) or "",
        "options": list(_options(kind)),
        "dialects": {name: dict(_chosen(one)) for name, one in dialects.items()},
        "follows": {
            name: one.provenance() for name, one in dialects.items() if isinstance(one, Dialect)
        },
        "signature": _made(kind, plugin, options).signature,
    }
    if arguments.json:
        from hpcbench.cli.output import print_json

        print_json(details)
        return 0
    low, high = details["bounds"]
    best = "highest" if details["higher_is_better"] else "lowest"
    print(f"{details['name']}: {details['definition']}\n")
    print(f"best      {best}, of {low:g} to {'any number' if high is None else f'{high:g}'}")
    print(f"aggregate {details['aggregation']}")
    print(f"answers   {', '.join(details['accepts'])}")
    print(f"signature {details['signature']}")
    if details["options"]:
        print("\noptions")
        for option in details["options"]:
            print(f"  {option['name']} = {json.dumps(option['default'], ensure_ascii=False)}")
            print(textwrap.indent(option["text"], "      "))
    if details["dialects"]:
        print("\ncompat: as another kit computes it")
        for name, more in details["dialects"].items():
            print(f"  {name}  {', '.join(f'{key}={value}' for key, value in more.items())}")
            if name in details["follows"]:
                print(textwrap.indent(_followed(details["follows"][name]), "      "))
    if details["module"]:
        print(f"\n{details['module']}")
    return 0


def score(arguments: argparse.Namespace) -> int:
    """`hpcbench metrics score NAME FILE`."""
    from hpcbench import statistics
    from hpcbench.cli.output import print_json
    from hpcbench.evaluation.plan_metrics import lacking
    from hpcbench.metrics.base import outside, value_of

    plugin, options = _found(arguments)
    kind = plugins.load("metrics", plugin)
    metric = _made(kind, plugin, {**options, **_given(arguments.option)})
    if problem := lacking(plugin, metric):
        raise UserError(problem)
    parts, values, documents, faults = [], [], [], []
    for number, row in _rows(arguments.file):
        prediction, references = _pair(row, kind, arguments.file, number)
        try:
            part = metric.score(prediction, references)
            value = value_of(metric, part)
            if wrong := outside(metric, value):
                raise ValueError(f"the metric gave {value:g}, {wrong}")
            values.append(value)
        except Exception as error:  # noqa: BLE001 - foreign code or data: one row is lost, and reported
            faults.append({"row": number, "fault": f"{type(error).__name__}: {error}"})
            continue
        parts.append(part)
        documents.append(str(row.get("document", number)))
        if arguments.each and not arguments.json:
            print(f"{row.get('id', number)}\t{round(values[-1], ROUNDED)}")
    if not parts:
        first = f": {faults[0]['fault']}" if faults else ""
        raise UserError(f"no row has a score{first}", file=arguments.file, remedy=_ROWS)
    if wrong := outside(metric, value := metric.aggregate(parts)):
        what = f"the value of '{arguments.name}' over all rows, {value:g}, is {wrong}"
        raise UserError(what, remedy="correct the metric or its `bounds`")
    interval = statistics.parts_interval(metric, parts, documents)
    result: dict[str, Any] = {
        "metric": arguments.name,
        "signature": metric.signature,
        "value": value,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "n": len(parts),
        "documents": len(set(documents)),
        "faults": faults,
    }
    if arguments.each:
        result["values"] = values
    if arguments.json:
        print_json(result)
    else:
        _print_scored(result)
    return 0


def _print_scored(result: Mapping[str, Any]) -> None:
    ends = (
        "no interval"
        if result["low"] is None
        else f"95 % interval {result['low']:.{ROUNDED}g} to {result['high']:.{ROUNDED}g}"
    )
    print(f"{result['metric']} {result['value']:.{ROUNDED}g}, {ends}")
    print(f"{result['n']} rows of {result['documents']} documents · {result['signature']}")
    if faults := result["faults"]:
        first = faults[0]
        print(f"{len(faults)} rows have no score; the first: row {first['row']}, {first['fault']}")


_OF_CLASS = ("higher_is_better", "aggregation", "accepts")
"""Columns of `metrics list` that only the metric's class knows."""


def _found(arguments: argparse.Namespace) -> tuple[str, Mapping[str, Any]]:
    """The plugin of a metric, importable, and its options: by the plugin's name, or by a definition's."""
    from hpcbench.cli.output import say
    from hpcbench.registry.catalog import Catalog
    from hpcbench.schema.metric import Metric
    from hpcbench.submit.plan_packages import use

    name: str = arguments.name
    if name in plugins.available("metrics"):
        return name, {}
    catalog = Catalog(arguments.registry)
    if catalog.files("metrics", name):
        use(catalog, say, [("metrics", name)])
        definition = catalog.get(Metric, name)
        return definition.plugin, definition.options
    use(catalog, say, named=[("metrics", name)])
    return name, {}


def _brief(name: str) -> dict[str, Any]:
    kind = plugins.load("metrics", name)
    return {
        "name": name,
        "higher_is_better": kind.higher_is_better,
        "aggregation": kind.aggregation,
        "accepts": list(getattr(kind, "accepts", ("text", "label", "object"))),
        "text": (inspect.getdoc(kind) or "").partition("\n")[0].rstrip("."),
        "from": plugins.origin(point) if (point := plugins.find("metrics", name)) else name,
    }


def _chosen(dialect: Any) -> Mapping[str, object]:
    """Options of a dialect; an external metric may give only these."""
    options: Mapping[str, object] = getattr(dialect, "options", dialect)
    return options


def _followed(code: Mapping[str, Any]) -> str:
    """Text for people about the code that a dialect follows."""
    files = "".join(f"\n{file}" for file in code["files"])
    return (
        f"follows {code['kit']}, {code['release']} of {code['date']} ({code['place']}){files}\n"
        f"test values computed on {code['computed']}"
    )


def _options(kind: Any) -> Iterator[dict[str, Any]]:
    """Fields of a metric with their defaults and their texts in the source."""
    cls: type = kind
    if not is_dataclass(cls):
        return
    texts: dict[str, str] = {}
    for base in reversed(inspect.getmro(cls)):
        texts |= _field_texts(base)
    for field in fields(cls):
        default = None if field.default is MISSING else field.default
        yield {"name": field.name, "default": default, "text": texts.get(field.name, "")}


def _field_texts(kind: type) -> dict[str, str]:
    from hpcbench.schema.describe import docs_below

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # built in, or without source
        return {}
    (node,) = tree.body
    found = docs_below(node) if isinstance(node, ast.ClassDef) else {}
    return {name: inspect.cleandoc(text) for name, text in found.items()}


def _given(options: Sequence[str]) -> dict[str, Any]:
    """Parse `tau=0.3` as YAML does."""
    from hpcbench.registry.settings import read_value

    given: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals or not name:
            what = f"--option {text} is not of the form NAME=VALUE"
            raise UserError(what, remedy="`hpcbench metrics show NAME` lists the options")
        given[name] = read_value(f"--option {text}", value)
    return given


def _made(kind: Any, name: str, options: Mapping[str, Any]) -> Any:
    """The metric with its options; invalid options are a user's error."""
    wrong = plugins.check_options(kind, options)
    if wrong:
        remedy = f"`hpcbench metrics show {name}` lists the options"
        raise UserError(*(Problem(message, remedy=remedy) for _, message in wrong))
    return plugins.with_options(kind, options)


_ROWS = "each row needs `prediction`, and `references` or `reference`"


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Numbered rows of a JSONL, CSV or Parquet file; an unreadable row is an error."""
    from hpcbench.data.annotations import ReadOptions, open_rows
    from hpcbench.data.tree import Tree

    with open_file(path) as file:
        head = file.readline(1 << 16)
    delimiter = ";" if path.suffix.lower() == ".csv" and b";" in head else None
    rows = open_rows(Tree(path.parent), [path], ReadOptions(delimiter=delimiter))
    for index, row in enumerate(rows.light(None)):
        if isinstance(row, Problem):
            raise UserError(row)
        yield rows.place(index)[1], row


def _pair(
    row: Mapping[str, Any], kind: Any, path: Path, number: int
) -> tuple[object, Sequence[object]]:
    """Prediction and references of a row; a metric of objects also parses texts that contain JSON."""
    lacks = "`prediction`" if "prediction" not in row else "`references` or `reference`"
    if "prediction" not in row or not ({"references", "reference"} & row.keys()):
        raise UserError(Problem(f"this row has no {lacks}", str(path), number, remedy=_ROWS))
    prediction = row["prediction"]
    listed = isinstance(row.get("references"), list)
    references = row["references"] if listed else [row.get("references", row.get("reference"))]
    if "object" in getattr(kind, "accepts", ()) and "text" not in kind.accepts:
        prediction, *references = (_object(one) for one in (prediction, *references))
    return prediction, references


def _object(value: object) -> object:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
