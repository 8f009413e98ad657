"""Send an experiment's results to the plan's places, or to one given place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.data.progress import Progress, silent
from hpcbench.data.upload import upload
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import Experiment

FOLDERS = ("shards", "scores", "report")
"""Folders of an experiment to send, with all files; logs of workers and jobs stay."""


def upload_results(
    experiment: Experiment,
    to: str | None = None,
    progress: Progress = silent,
    patience: float = 0.0,
) -> list[dict[str, Any]]:
    """Send results to every place of the plan, or to one; a place that fails does not delay others.

    Args:
        experiment: the experiment.
        to: the only place; none: the plan's places.
        progress: receives the progress.
        patience: how long to wait while another upload of these results is running, seconds.

    Returns:
        For each place its `url`, and the `error`, or `sent` files and lines about those `left` out.
    """
    wanted: list[tuple[str, dict[str, Any]]] = []
    site = experiment.resolved.site
    if to is not None:
        wanted.append((to, {}))
    else:
        wanted += [(one.url, dict(one.storage)) for one in experiment.resolved.plan.upload]
    done: list[dict[str, Any]] = []
    deadline = time.monotonic() + patience
    for url, options in wanted:
        place = f"{url.rstrip('/')}/{experiment.id}"
        known = {**site.storage.get(url.partition("://")[0], {}), **options}
        log = experiment.path / "uploads.jsonl"
        try:
            files = _results(experiment)
            waiting = max(0.0, deadline - time.monotonic())
            made = upload(experiment.path, files, place, known, log, progress, waiting)
        except Exception as error:  # noqa: BLE001 - storages are plugins, and the other places wait
            known_fault = isinstance(error, HpcbenchError)
            what = str(error) if known_fault else f"{type(error).__name__}: {error}"
            done.append({"url": place, "error": secret.mask(what)})
        else:
            done.append({"url": place, "sent": made.sent, "left": list(made.left)})
    return done


def _results(experiment: Experiment) -> list[Path]:
    files = [
        path for path in experiment.path.iterdir() if path.suffix in (".json", ".yaml", ".jsonl")
    ]
    for folder in FOLDERS:
        files += (experiment.path / folder).rglob("*")
    return sorted(
        path
        for path in files
        if path.is_file() and not path.name.startswith(".") and path.name != "uploads.jsonl"
    )
