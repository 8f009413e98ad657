"""Writes the reports of an experiment, each in its format; one that fails does not keep the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.reporting.formats import WORST
from hpcbench.reporting.formats.markdown import summary
from hpcbench.reporting.gather import gather
from hpcbench.schema.outputs import Report

DEFAULT = (Report(name="markdown", plugin="markdown"), Report(name="html", plugin="html"))
"""Reports of an experiment without any `reports`."""

FAILED = "failed.txt"
"""Lists the reports that could not be written, and why."""


def report(
    experiment: Experiment,
    definitions: Sequence[Report] | None = None,
    folder: Path | None = None,
    said: Callable[[Report, Sequence[Path], Exception | None], None] | None = None,
    *,
    reused_times: bool = False,
) -> Mapping[str, Any]:
    """Write reports.

    A report that fails is named in `failed.txt`; the others are written all the same.

    Args:
        experiment: it has been evaluated.
        definitions: reports to write; None: the plan's.
        folder: the target folder; None: the experiment's `report/`.
        said: receives each report with its files, or with the error that prevented it.
        reused_times: whether speed includes answers of earlier experiments.

    Returns:
        The tables that the reports received.

    Raises:
        EnvironmentFault: there are no scores, or they are damaged.
        OSError: the folder cannot be written.
    """
    chosen = definitions if definitions is not None else experiment.resolved.reports or DEFAULT
    worst = max(map(_worst, chosen), default=0)
    tables = gather(experiment, worst, reused_times=reused_times)
    place = folder or experiment.report_dir
    if folder is None:
        write_json(experiment.summary_file, {"version": 1, "blocks": summary(tables)})
    failed: list[str] = []
    for definition in chosen:
        written: list[Path] = []
        wrong: Exception | None = None
        try:
            files = plugins.load("reports", definition.plugin)(definition.options).render(tables)
        except HpcbenchError as error:
            failed.append(f"{definition.name}: {error}")
            wrong = error
        except Exception as error:  # noqa: BLE001 - foreign code may raise any error
            failed.append(f"{definition.name}: {type(error).__name__}: {error}")
            wrong = error
        else:
            for name, content in files.items():
                written.append(place / Path(name).name)
                write_atomic(written[-1], content)
        if said is not None:
            said(definition, written, wrong)
    _tell_failed(place / FAILED, [definition.name for definition in chosen], failed)
    return tables


def _tell_failed(path: Path, names: Sequence[str], failed: Sequence[str]) -> None:
    """Write the failed reports to a file; lines of reports not in `names` stay."""
    try:
        before = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        before = []
    kept = [one for one in before if ":" in one and one.partition(":")[0] not in names]
    lines = [*kept, *(" ".join(one.split()) for one in failed)]
    if lines:
        write_atomic(path, "".join(f"{one}\n" for one in lines))
    elif before:
        path.unlink(missing_ok=True)


def _worst(definition: Report) -> int:
    """Samples that a report shows of each run task."""
    wanted = definition.options.get("worst", WORST)
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else WORST
