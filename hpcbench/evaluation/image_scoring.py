"""Metrics that score in an image: the host reads the answers, a container computes, the host decides.

The container sees the samples and readings in one folder, read-only, writes into another one, and has no
network. The host reads its output back and checks it. A container that fails costs its own metrics: each
sample gets the reason as its fault.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench import environments, plugins
from hpcbench.environments.failures import is_apptainers_own, recognise
from hpcbench.environments.orphans import end_session, held_folder, scratch
from hpcbench.environments.packages import last_words
from hpcbench.errors import EnvironmentFault
from hpcbench.evaluation.scoring import Outcome
from hpcbench.files.tail import last_bytes
from hpcbench.plugins import Environment
from hpcbench.schema.metric import Metric
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from hpcbench.schema.shared_types import MetricFacts
from hpcbench.schema.site import ContainerSite, Site
from hpcbench.scorer import handover
from hpcbench.scorer.handover import Asked, Wanted
from hpcbench.subprocesses import kill_session

TAIL_BYTES = 2**16
"""Bytes at the end of a container's output that are searched for its reason."""


@dataclass
class ImageScorer:
    """Scores by the metrics of one image; one container a batch."""

    title: str
    """The image, as messages call it."""
    wanted: Sequence[Wanted]
    """The metrics."""
    environment: Environment | None
    """The prepared image; None: it was not prepared for this experiment."""
    site: Site
    seconds: float
    """Time limit of one metric for one sample."""
    failed: dict[str, str] = field(default_factory=dict)
    """Metric → why it scored nothing, one line."""

    @property
    def metrics(self) -> Sequence[str]:
        """Names of its metrics."""
        return [one.name for one in self.wanted]

    @property
    def identity(self) -> list[str | None]:
        """Key of all that determines its scores besides the metrics: image and packages."""
        if self.environment is None:
            return [None]
        packages = self.environment.packages
        return [self.environment.digest, Path(packages).name if packages is not None else None]

    def only(self, names: Sequence[str]) -> ImageScorer:
        """The same for some of the metrics."""
        wanted = [one for one in self.wanted if one.name in names]
        return ImageScorer(self.title, wanted, self.environment, self.site, self.seconds)

    def score(self, asked: Sequence[Asked]) -> Mapping[str, Sequence[Outcome]]:
        """Metric → score or fault of each sample. After a failure no further container starts."""
        found: dict[str, Sequence[Outcome]] = {}
        left = [one for one in self.wanted if one.name not in self.failed]
        if left:
            try:
                found = self._run(left, asked)
            except (EnvironmentFault, OSError) as error:
                self._fail(left, " ".join(str(error).split()))
        return {
            name: found[name] if name in found else [(None, self.failed[name])] * len(asked)
            for name in self.metrics
        }

    def describe(self) -> dict[str, MetricFacts | str]:
        """Metric → what it says of itself in the image, or why it cannot score there, one line.

        Raises:
            EnvironmentFault: the container does not start.
        """
        with held_folder(scratch(self.site.scratch)) as folder:
            here, there = _folders(folder)
            handover.write_metrics(here, self.wanted, self.seconds)
            code, output = self._container(folder, here, there)
            facts = {
                one.name: _facts(handover.facts_file(there, number))
                for number, one in enumerate(self.wanted)
            }
            if all(one is None for one in facts.values()):
                raise EnvironmentFault(self._why(code, output))
            return {name: one or self._why(code, output) for name, one in facts.items()}

    def _run(
        self, wanted: Sequence[Wanted], asked: Sequence[Asked]
    ) -> dict[str, Sequence[Outcome]]:
        found: dict[str, Sequence[Outcome]] = {}
        with held_folder(scratch(self.site.scratch)) as folder:
            here, there = _folders(folder)
            handover.write_metrics(here, wanted, self.seconds)
            refused = handover.write_samples(here, asked)
            code, output = self._container(folder, here, there)
            for number, one in enumerate(wanted):
                try:
                    path = handover.scores_file(there, number)
                    outcomes = list(_outcomes(path, refused))
                    if (lacking := _lacking(outcomes)) is not None:
                        self._fail([one], lacking)
                    else:
                        found[one.name] = outcomes
                except FileNotFoundError:
                    facts = _facts(handover.facts_file(there, number))
                    if isinstance(facts, str):
                        self._fail([one], facts)
                    else:  # it ended while this metric scored, and before the others
                        self._fail(wanted[number:], self._why(code, output), one.name)
                        break
                except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
                    self._fail([one], f"it wrote scores that cannot be read: {error}")
        return found

    def _fail(self, wanted: Sequence[Wanted], why: str, during: str = "") -> None:
        """Write down why metrics have no scores; those that have a reason keep it."""
        during = f" (while '{during}' scored)" if during and len(wanted) > 1 else ""
        for one in wanted:
            what = f"metric '{one.name}' could not score in {self.title}: {why}{during}"
            self.failed.setdefault(one.name, what)

    def command(self, here: Path, there: Path) -> plugins.Command:
        """The command that scores the files of one folder into another.

        Raises:
            EnvironmentFault: the image is not on this machine, or was never prepared.
        """
        if self.environment is None:
            raise EnvironmentFault(
                "the image was not prepared for this experiment",
                remedy="run the plan again with `hpcbench submit`",
            )
        return environments.wrap(
            self.environment,
            ["python", "-m", "hpcbench.scorer", str(here), str(there)],
            [str(there), f"{here}:{here}:ro"],
            {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
            gpus=0,
            container=_without_network(self.site.container),
        )

    def check(self) -> None:
        """Check that it can start here.

        Raises:
            EnvironmentFault: the image or its program is not on this machine; names the image.
        """
        try:
            with held_folder(scratch(self.site.scratch)) as folder:
                self.command(*_folders(folder))
        except EnvironmentFault as fault:
            names = ", ".join(f"'{name}'" for name in self.metrics)
            raise EnvironmentFault(
                f"metric {names} scores in {self.title}: {fault.message}", remedy=fault.remedy
            ) from fault

    def _container(self, folder: Path, here: Path, there: Path) -> tuple[int, str]:
        """Run the container to its end; returns its exit code and the end of its output."""
        command = self.command(here, there)
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                stdin=subprocess.PIPE,  # its end says that this process is gone
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait()
            finally:
                kill_session(process)
                end_session(process.pid)
        return code, last_bytes(log, TAIL_BYTES).decode(errors="replace")

    def _why(self, code: int, output: str) -> str:
        """Why a container has no scores."""
        said = last_words(output)
        if is_apptainers_own(code, output):
            why = f"the container did not start: {said}"
        elif code in (137, -9):
            why = "the container was killed, perhaps for its memory"
        else:
            why = f"the container ended with exit code {code}: {said}"
        known = recognise(output)
        return f"{why} ({known.what}; {known.remedy})" if known else why


def scorers_of(
    resolved: ResolvedPlan, run_task: ResolvedRunTask, prepared: Mapping[str, Any]
) -> tuple[ImageScorer, ...]:
    """The images in which a run task's metrics score.

    Args:
        resolved: the plan; its site says how containers start.
        run_task: the run task.
        prepared: `ScoringImage.environment` → the environment, or its plain data.
    """
    definitions = {one.name: one for one in run_task.metrics}
    found = []
    for image in run_task.scoring_images:
        stored = prepared.get(image.environment)
        environment = Environment(**stored) if isinstance(stored, Mapping) else stored
        wanted = [_wanted(definitions[name]) for name in image.metrics]
        title = title_of(resolved, image.image)
        seconds = run_task.task.score_timeout
        found.append(ImageScorer(title, wanted, environment, resolved.site, seconds))
    return tuple(found)


def title_of(resolved: ResolvedPlan, reference: str) -> str:
    """Name of an image in messages: its definition's name, or its reference without the digest."""
    definition = resolved.images.get(reference)
    return f"image '{definition.name if definition else reference.partition('@')[0]}'"


def _wanted(metric: Metric) -> Wanted:
    return Wanted(metric.name, metric.plugin, dict(metric.options))


def _without_network(container: ContainerSite) -> ContainerSite:
    """The site's settings, but scorers reach no network."""
    return container.model_copy(update={"network": "none"})


def _folders(folder: Path) -> tuple[Path, Path]:
    """Folders of what is asked and of what is answered."""
    here, there = folder / "asked", folder / "scores"
    here.mkdir()
    there.mkdir()
    return here, there


def _facts(path: Path) -> MetricFacts | str | None:
    """A metric's description, or why it cannot be loaded; None: it gave none."""
    try:
        data = json.loads(path.read_text())
        if "error" in data:
            return str(data["error"])
        return MetricFacts.model_validate_json(json.dumps(data))
    except OSError:
        return None
    except (ValueError, TypeError, ValidationError) as error:
        return f"it wrote facts that cannot be read: {' '.join(str(error).split())}"


def _lacking(outcomes: Sequence[Outcome]) -> str | None:
    """The fault of all samples, if the image lacks a module that the metric imports when it scores."""
    faults = [fault for _, fault in outcomes]
    missing = ("ModuleNotFoundError: ", "ImportError: ")
    return faults[0] if faults and all(one and one.startswith(missing) for one in faults) else None


def _outcomes(path: Path, refused: Sequence[str | None]) -> Iterator[Outcome]:
    """Score or fault of each sample.

    Raises:
        OSError, ValueError, TypeError, KeyError: the file is missing, damaged, or of other samples.
    """
    for why, outcome in zip(refused, handover.read_scores(path), strict=True):
        yield outcome if why is None else (None, why)
