"""Versions of hpcbench and its packages: the software of a methods section."""

from __future__ import annotations

import time
from collections.abc import Iterator

from hpcbench.experiment.event_log import time_of
from hpcbench.reporting.blocks import Text
from hpcbench.reporting.methods.facts import Facts, MethodsLine, Missing


def software(facts: Facts) -> Iterator[MethodsLine]:
    """hpcbench, Python, packages, and changes of the environment while the experiment ran."""
    manifest = facts.manifest
    git = manifest.git["hpcbench"]
    verb = "imported" if facts.imported is not None else "created"
    text = f"The experiment was {verb} on {manifest.created} by hpcbench {manifest.hpcbench}"
    if git is not None:
        text += f" (commit {git['commit']}{', with uncommitted changes' if git['dirty'] else ''})"
    seed = f", seed of the plan {manifest.seed}" if manifest.seed is not None else ""
    yield Text(f"{text} under Python {manifest.python}, RUN_MODE {manifest.mode}{seed}.")
    if git is None:
        yield Missing("The commit of hpcbench: it was installed without its repository.")
    yield Missing(
        "The version of hpcbench that computed the scores, if they were computed again: signatures name the "
        "version of each metric."
    )
    yield from _packages(facts)
    if manifest.settings:
        settings = ", ".join(f"`{one}`" for one in manifest.settings)
        yield Text(f"Settings of the command line: {settings}.")
    for one in facts.experiment.environments():
        since = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time_of(one)))
        changes = "; ".join(one["changes"]) or "an environment that was not recorded before"
        yield Text(f"Since {since} the experiment ran in a changed environment: {changes}.")


def _packages(facts: Facts) -> Iterator[MethodsLine]:
    known = [f"{name} {version}" for name, version in facts.manifest.packages.items() if version]
    if known:
        yield Text(f"Packages: {', '.join(known)}.")
    else:
        yield Missing("Versions of the Python packages beside hpcbench.")
    if plugins := facts.manifest.plugin_packages:
        text = ", ".join(f"{name} ({identity})" for name, identity in plugins.items())
        yield Text(f"Packages with plugins: {text}.")
