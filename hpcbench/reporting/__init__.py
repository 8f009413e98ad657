"""The report of an experiment: Markdown for terminals and repositories, one HTML file for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from hpcbench import plugins
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.files import read_json, write_atomic
from hpcbench.experiment.layout import Experiment
from hpcbench.reporting.plot import plot_svg, sweep_svg
from hpcbench.reporting.tables import (
    format_interval,
    format_value,
    latency_rows,
    memory_rows,
    metric_rows,
    speed_rows,
)
from hpcbench.schema.documents import Report

WORST = 3
"""Samples shown of each run task."""

CUT = 300
"""Characters of an answer or reference shown."""

DEFAULT = (Report(name="markdown", plugin="markdown"), Report(name="html", plugin="html"))
"""What an experiment without any `reports` gets."""

POLICY = {
    "zero": "count as the worst value the metric knows",
    "exclude": "are left out",
}


class _NoOptions(BaseModel):
    """Of a report that has none."""

    model_config = ConfigDict(extra="forbid")


class Markdown:
    """`report.md`, for terminals and repositories."""

    api: ClassVar[int] = 1

    Options: ClassVar[type[BaseModel]] = _NoOptions

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """The report and its plots."""
        plots = {"plot.svg": tables["plot"]} if tables["plot"] else {}
        plots |= {sweep["file"]: sweep["plot"] for sweep in tables["sweeps"] if sweep["plot"]}
        return {"report.md": _rendered("report.md", tables, escape=False), **plots}


class Html:
    """`report.html`, one file for people."""

    api: ClassVar[int] = 1

    Options: ClassVar[type[BaseModel]] = _NoOptions

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """The report, its plots inside."""
        return {"report.html": _rendered("report.html", tables, escape=True)}


def report(experiment: Experiment) -> Mapping[str, Any]:
    """Have every report of the plan write its files into `report/`.

    A report that fails is named in `report/failed.txt` and costs the others nothing.

    Returns:
        The tables that the reports were given.
    """
    tables = _context(experiment)
    failed: list[str] = []
    for document in experiment.resolved.reports or DEFAULT:
        try:
            files = plugins.load("reports", document.plugin)(document.options).render(tables)
            for name, content in files.items():
                write_atomic(experiment.report_dir / Path(name).name, content)
        except HpcbenchError as error:
            failed.append(f"{document.name}: {error}")
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is its own fault
            failed.append(f"{document.name}: {type(error).__name__}: {error}")
    if failed:
        write_atomic(experiment.report_dir / "failed.txt", "".join(f"{one}\n" for one in failed))
    return tables


def _rendered(name: str, tables: Mapping[str, Any], *, escape: bool) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hpcbench.reporting"),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "value": format_value,
        "interval": format_interval,
        "cell": _cell,
        "pretty": _pretty,
    }
    return environment.get_template(f"{name}.j2").render(tables)


def _context(experiment: Experiment) -> dict[str, Any]:
    """All that the templates show."""
    metrics: Mapping[str, Any] = read_json(experiment.metrics_file)
    performance: Mapping[str, Any] = read_json(experiment.performance_file)
    manifest: Mapping[str, Any] = experiment.manifest
    rows = list(metric_rows(metrics))
    run_tasks: Mapping[str, Any] = metrics["run_tasks"]
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    left = [state for state in shard_states(experiment, names) if state.state != "done"]
    return {
        "version": 1,
        "id": experiment.id,
        "path": str(experiment.path),
        "plan": experiment.resolved.plan.model_dump(mode="json"),
        "metrics": metrics,
        "performance": performance,
        "rows": rows,
        "run_tasks": run_tasks,
        "asked": sum(table["asked"] for table in run_tasks.values()),
        "answered": sum(table["answered"] for table in run_tasks.values()),
        "documents_left": sum(state.shard.stop - state.shard.start for state in left),
        "imperfect": {
            name: table
            for name, table in run_tasks.items()
            if set(table["outcomes"]) != {"ok"} or table["unread"]
        },
        "policy": POLICY,
        **_speed(performance),
        "plot": plot_svg(rows),
        "worst": {name: _worst(experiment, name, run_tasks[name]) for name in _told(performance)},
        "signatures": sorted({(row.metric, row.signature, row.method) for row in rows}),
        "facts": _facts(manifest),
        "manifest": manifest,
    }


def _speed(performance: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of speed: points of a sweep stand together and not among the other run tasks."""
    run_tasks, sweeps = performance["run_tasks"], performance["sweeps"]
    alone = [name for name, table in run_tasks.items() if table["load"]["sweep"] is None]
    return {
        "speed_rows": list(speed_rows(performance, alone)),
        "latency_rows": list(latency_rows(performance, alone)),
        "sweeps": [
            {
                "name": name,
                "rows": list(speed_rows(performance, sweep["points"])),
                "goals": _goals(run_tasks[sweep["points"][0]]["attainment"]),
                "plot": sweep_svg(sweep, run_tasks),
                "file": f"sweep-{name}.svg",
            }
            for name, sweep in sweeps.items()
        ],
        "memory_rows": list(memory_rows(performance)),
        "speed_notes": {
            name: table["notes"] for name, table in run_tasks.items() if table["notes"]
        },
    }


def _told(performance: Mapping[str, Any]) -> list[str]:
    """Run tasks whose samples are shown: of a sweep the first point, the others asked the same."""
    others = {name for sweep in performance["sweeps"].values() for name in sweep["points"][1:]}
    return [name for name in performance["run_tasks"] if name not in others]


def _goals(attainment: Mapping[str, Any] | None) -> str:
    """`TTFT ≤ 500 ms, TPOT ≤ 50 ms`; empty without limits."""
    limits = (attainment or {"slo": {}})["slo"]
    return ", ".join(
        f"{name.upper()} ≤ {limits[f'{name}_ms']:g} ms"
        for name in ("ttft", "tpot", "e2e")
        if limits.get(f"{name}_ms") is not None
    )


def _worst(experiment: Experiment, run_task: str, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The samples that the first metric likes least: what to look at first; none that are perfect."""
    import polars

    names = [name for name, entry in table["metrics"].items() if entry is not None]
    if not names or not experiment.scores_file(run_task).exists():
        return []
    name, better_up = names[0], table["metrics"][names[0]]["higher_is_better"]
    flawed = polars.col(name) < 1 if better_up else polars.col(name) > 0
    frame = (
        polars.read_parquet(experiment.scores_file(run_task))
        .filter(polars.col(name).is_not_null() & flawed)
        .sort([name, "sample"], descending=[not better_up, False])
        .head(WORST)
    )
    return [
        {
            "sample": row["sample"],
            "metric": name,
            "score": f"{row[name]:.3f}",
            "answer": _shortened(row["answer"] if row["answer"] is not None else row["outcome"]),
            "reference": _shortened(row["references"][0]),
        }
        for row in frame.iter_rows(named=True)
    ]


def _facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the numbers depend on, for people; the whole manifest follows in HTML."""
    measured = manifest["measured"]
    facts = [
        ("hpcbench", _with_commit(manifest["hpcbench"], manifest["git"]["hpcbench"])),
        ("Python", manifest["python"]),
        ("created", f"{manifest['created']} on {manifest['host']}"),
        ("plan", _with_commit(manifest["plan_key"][:16], manifest["git"]["plan"])),
        ("seed", str(manifest["seed"])),
        ("RUN_MODE", manifest.get("mode", "prod")),
    ]
    if manifest.get("settings"):
        facts.append(("--set", ", ".join(manifest["settings"])))
    if manifest.get("baseline"):
        facts.append(("baseline", manifest["baseline"]))
    facts += [(f"model {name}", value) for name, value in measured["model_hashes"].items()]
    hashes = dict.fromkeys(measured["dataset_hashes"].values())
    for value in hashes:
        used = [name for name, other in measured["dataset_hashes"].items() if other == value]
        facts.append((f"dataset of {', '.join(used)}", value))
    for image, environment in manifest["environments"].items():
        facts.append((f"image {image or 'this Python'}", environment["digest"] or "–"))
    for name, locked in manifest.get("plugin_packages", {}).items():
        facts.append((f"package {name}", locked))
    packages = [f"{name} {version}" for name, version in manifest["packages"].items() if version]
    return [*facts, ("packages", ", ".join(packages))]


def _with_commit(text: str, git: Mapping[str, Any] | None) -> str:
    if git is None:
        return text
    return (
        f"{text}, commit {git['commit'][:12]}{' and uncommitted changes' if git['dirty'] else ''}"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= CUT else f"{text[:CUT]} …"


def _cell(text: object) -> str:
    """Text for a Markdown table's cell."""
    escaped = str(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return " ".join(escaped.split()) or "–"


def _pretty(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True)
