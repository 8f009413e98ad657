"""The report of an experiment: tables gathered once, written by each report of the plan in its format.

    report(experiment)                     what the plan asks for, into EXPERIMENT/report/
    report(experiment, documents, folder)  other reports, after the fact, elsewhere

`context` gathers the tables (`artefact` says what they hold), `sections` puts them in order and words,
`formats/` writes them down, `figures/` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.reporting.context import gather
from hpcbench.reporting.formats import WORST
from hpcbench.reporting.formats.markdown import summary
from hpcbench.schema.documents import Report

DEFAULT = (Report(name="markdown", plugin="markdown"), Report(name="html", plugin="html"))
"""What an experiment without any `reports` gets."""

FAILED = "failed.txt"
"""Which reports could not be written, and why."""


def report(
    experiment: Experiment,
    documents: Sequence[Report] | None = None,
    folder: Path | None = None,
    said: Callable[[Report, Sequence[Path], Exception | None], None] | None = None,
) -> Mapping[str, Any]:
    """Have reports write their files.

    A report that fails is named in `failed.txt` and costs the others nothing.

    Args:
        experiment: it has been evaluated.
        documents: reports to write; None: the plan's.
        folder: where to; None: the experiment's `report/`.
        said: told of each report what it wrote, or why it did not.

    Returns:
        The tables that the reports were given.

    Raises:
        EnvironmentFault: there are no scores, or they are damaged.
        OSError: the folder cannot be written.
    """
    chosen = documents if documents is not None else experiment.resolved.reports or DEFAULT
    tables = gather(experiment, max(map(_worst, chosen), default=0))
    place = folder or experiment.report_dir
    if folder is None:
        write_json(experiment.summary_file, {"version": 1, "blocks": summary(tables)})
    failed: list[str] = []
    for document in chosen:
        written: list[Path] = []
        wrong: Exception | None = None
        try:
            files = plugins.load("reports", document.plugin)(document.options).render(tables)
        except HpcbenchError as error:
            failed.append(f"{document.name}: {error}")
            wrong = error
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is its own fault
            failed.append(f"{document.name}: {type(error).__name__}: {error}")
            wrong = error
        else:
            for name, content in files.items():
                written.append(place / Path(name).name)
                write_atomic(written[-1], content)
        if said is not None:
            said(document, written, wrong)
    _tell_failed(place / FAILED, [document.name for document in chosen], failed)
    return tables


def _tell_failed(path: Path, names: Sequence[str], failed: Sequence[str]) -> None:
    """Write down what failed; of reports that were not among these what was there stays."""
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


def _worst(document: Report) -> int:
    """Samples that a report wants of each run task."""
    wanted = document.options.get("worst", WORST)
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else WORST
