"""The inputs of the figures, the differences from the baseline, and the command to run them again."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

from hpcbench.errors import HpcbenchError, first_line
from hpcbench.experiment.event_log import time_of
from hpcbench.experiment.layout import Experiment, find
from hpcbench.experiment.manifest import Commit
from hpcbench.reporting.report_tables import Baseline, Difference, Provenance


def provenance(experiment: Experiment) -> Provenance:
    """The inputs of the figures, for people, and one command that runs the same again."""
    facts = [*_facts(experiment), *_later_environments(experiment)]
    return {"facts": facts, "reproduce": reproduce(experiment)}


def reproduce(experiment: Experiment) -> str:
    """One command that runs the same again from any folder, quoted for a shell; else a remark why not."""
    if experiment.manifest.imported is not None:
        return "# imported: there is no plan to run again"
    return shlex.join(["hpcbench", "rerun", str(experiment.path)])


def baseline(experiment: Experiment, other: str | None) -> Baseline | None:
    """Configuration differences from another experiment of the same home.

    Args:
        experiment: the experiment.
        other: the baseline's id, or its name; None: there is none.
    """
    from hpcbench.comparison.differences import config_differences

    if other is None:
        return None
    try:
        there = find(experiment.path.parent.parent, other)
        found = config_differences(there, experiment)
    except (HpcbenchError, OSError, ValueError, KeyError) as error:
        why = first_line(error)
        return {"id": other, "differences": None, "why": why}
    differences: list[Difference] = [
        {"path": one.path, "baseline": one.one, "experiment": one.other} for one in found
    ]
    return {"id": there.id, "differences": differences, "why": ""}


def _facts(experiment: Experiment) -> list[tuple[str, str]]:
    manifest, measured = experiment.manifest, experiment.measured
    facts = [
        ("hpcbench", _with_commit(manifest.hpcbench, manifest.git["hpcbench"])),
        ("Python", manifest.python),
        ("created", f"{manifest.created} on {manifest.host}"),
        ("plan", _with_commit(manifest.plan_key[:16], manifest.git["plan"])),
        ("seed", str(manifest.seed)),
        ("RUN_MODE", manifest.mode),
    ]
    if manifest.settings:
        facts.append(("--set", ", ".join(manifest.settings)))
    if manifest.baseline:
        facts.append(("baseline", manifest.baseline))
    facts += [(f"model {name}", value) for name, value in measured.model_hashes.items()]
    hashes = dict.fromkeys(measured.dataset_hashes.values())
    for value in hashes:
        used = [name for name, other in measured.dataset_hashes.items() if other == value]
        facts.append((f"dataset of {', '.join(used)}", value))
    for image, environment in manifest.environments.items():
        facts.append((f"image {image or '(none: this Python)'}", environment["digest"] or "–"))
    for name, locked in manifest.plugin_packages.items():
        facts.append((f"package {name}", locked))
    packages = [f"{name} {version}" for name, version in manifest.packages.items() if version]
    return [*facts, ("packages", ", ".join(packages))]


def _later_environments(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Changes of the environment with their times; answers before and after belong to one experiment."""
    for one in experiment.environments():
        since = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time_of(one)))
        yield f"environment since {since}", "; ".join(one["changes"]) or "not known before"


def _with_commit(text: str, git: Commit | None) -> str:
    if git is None:
        return text
    changed = " and uncommitted changes" if git["dirty"] else ""
    return f"{text}, commit {git['commit'][:12]}{changed}"
