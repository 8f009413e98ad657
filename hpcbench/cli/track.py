"""`hpcbench track`: send experiments to trackers, during or after the run."""

from __future__ import annotations

import argparse
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from hpcbench import plugins, secret
from hpcbench.cli.output import print_json, say
from hpcbench.errors import EnvironmentFault, HpcbenchError, Problem, RunFailed, UserError
from hpcbench.experiment.events import has_ended
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.registry.catalog import user_site
from hpcbench.schema.outputs import Tracker

if TYPE_CHECKING:
    from hpcbench.tracking.feed import SentCounts


def track(arguments: argparse.Namespace) -> int:
    """`hpcbench track [EXPERIMENT] [--tracker NAME] [--option KEY=VALUE] [--live]`."""
    experiment = find(home(user_site()), arguments.experiment)
    experiment.use_packages()
    chosen = _chosen(experiment, arguments.tracker, _options(arguments.options))
    ready: list[tuple[Tracker, Any]] = []
    for one in chosen:
        tracker = _opened(one)
        if tracker is None:
            say(
                f"hpcbench: {one.plugin} takes only the end of an experiment; this command sends it nothing"
            )
        else:
            ready.append((one, tracker))
    results: list[dict[str, Any]] = []
    for name, sent, why in _sent(experiment, ready, live=arguments.live):
        line = {"tracker": name, "fault": why, **(dataclasses.asdict(sent) if sent else {})}
        results.append(line)
        if arguments.json:
            continue
        if sent is None:
            say(f"hpcbench: {name}: {why}")
        else:
            print(f"{name}: {_words(sent)}")
    if arguments.json:
        print_json({"experiment": experiment.id, "trackers": results})
    return EnvironmentFault.exit_code if any(one["fault"] for one in results) else 0


def _options(words: Sequence[str]) -> dict[str, Any]:
    from hpcbench.registry.settings import read_value

    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            what = f"--option {word} is not of the form KEY=VALUE"
            raise UserError(what, remedy="for example --option url=https://…")
        # A reference is no YAML: `${…}` begins a mapping.
        plain = secret.REFERENCE.search(value)
        found[name] = value if plain else read_value(f"--option {word}", value)
    return found


def _chosen(experiment: Experiment, name: str | None, options: Mapping[str, Any]) -> list[Tracker]:
    """The selected trackers, with their options.

    Raises:
        UserError: no tracker is selected.
    """
    known = experiment.resolved.plan.trackers
    if options and name is None:
        raise UserError("--option needs the name of a tracker", remedy="add --tracker NAME")
    found = [one for one in known if name in (None, one.plugin)]
    if not found and options and name is not None:
        found = [Tracker(plugin=name)]
    if not found:
        there = ", ".join(one.plugin for one in known) or "none"
        which = f"no tracker '{name}'" if name else "no trackers"
        remedy = "--tracker NAME --option KEY=VALUE adds one, see docs/trackers.md"
        raise UserError(f"the plan of {experiment.id} has {which} (it has: {there})", remedy=remedy)
    return [one.model_copy(update={"options": {**one.options, **options}}) for one in found]


def _opened(tracker: Tracker) -> Any:
    """The constructed tracker; None for a tracker that only gets the end of an experiment.

    Raises:
        UserError: its options are wrong.
        EnvironmentFault: a secret is missing.
    """
    plugin = plugins.load("trackers", tracker.plugin)
    wrong = plugins.check_options(plugin, tracker.options)
    if wrong:
        where = f"tracker {tracker.plugin}"
        raise UserError(*(Problem(f"{where}: {what}") for _, what in wrong))
    if not hasattr(plugin, "track"):
        return None
    return plugin(plugins.revealed(plugin, tracker.options))


def _sent(
    experiment: Experiment, ready: Sequence[tuple[Tracker, Any]], *, live: bool
) -> Iterator[tuple[str, SentCounts | None, str | None]]:
    """Each tracker with its result, or the reason of its failure, in order of completion; all run at once."""
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn

    err, watch = Console(stderr=True), _Watch(experiment, live)
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with (
        Bar(*columns, console=err, transient=True, disable=not err.is_terminal) as bar,
        ThreadPoolExecutor(max(1, len(ready))) as pool,
    ):
        jobs = {}
        for one, tracker in ready:
            row = bar.add_task(one.plugin)
            tell = _progress(bar, row, one.plugin, watch)
            jobs[pool.submit(tracker.track, experiment.path, live=live, tell=tell)] = one.plugin
        for job in as_completed(jobs):
            try:
                yield jobs[job], job.result(), None
            except HpcbenchError as error:
                yield jobs[job], None, secret.mask(str(error))


class _Watch:
    """Checks from time to time whether a running experiment was lost, as then no process records its end."""

    def __init__(self, experiment: Experiment, live: bool) -> None:
        self._experiment, self._live = experiment, live
        self._lock, self._looked, self._over = threading.Lock(), time.monotonic(), False

    def check(self) -> None:
        """Check, if it is time.

        Raises:
            RunFailed: the experiment cannot go on by itself.
        """
        from hpcbench.cli.follow import QUIET_SECONDS, over

        with self._lock:
            if self._live and time.monotonic() - self._looked > QUIET_SECONDS:
                word = over(self._experiment)
                self._over = word is not None and not has_ended(self._experiment)
                self._looked = time.monotonic()
        if self._over:
            raise RunFailed(
                f"{self._experiment.id} ended without a result; hpcbench sent what it has; "
                f"see `hpcbench status {self._experiment.id}`"
            )


def _progress(bar: Any, row: Any, name: str, watch: _Watch) -> Callable[[SentCounts], None]:
    def tell(sent: SentCounts) -> None:
        bar.update(row, description=f"{name}: {sent.fault or _words(sent)}")
        watch.check()

    return tell


def _words(sent: SentCounts) -> str:
    found = [
        f"{count:,} {what}{'' if count == 1 else 's'}"
        for count, what in (
            (sent.figures, "figure"), (sent.files, "file"), (sent.exchanges, "sample"),
        )
        if count
    ]  # fmt: skip
    end = f"; the experiment is {sent.state}" if sent.state else "; the experiment continues"
    return (", ".join(found) + " sent" if found else "nothing new") + end
