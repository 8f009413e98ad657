"""How many samples of a plan will be asked, before it is submitted: for `--dry-run` and `--estimate`.

The keys are those of submission, by the same functions. A preview builds no image and hashes no model, and
mostly needs neither: an image or model that was never built or hashed here has no answers here. If
submission asks a registry for the meaning of a name, the preview takes its meaning here, and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench import environments
from hpcbench.data.datasets import open_dataset
from hpcbench.data.tree import folder_files, known_content_hash
from hpcbench.environments.images import built_images, known_file_digest
from hpcbench.environments.plugin_packages import known_identity
from hpcbench.environments.venv import probed_python
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import home
from hpcbench.number_format import few, many
from hpcbench.planning import answer_basis
from hpcbench.plugins import DatasetIterator, Environment
from hpcbench.schema.package import Package
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.site import ContainerSite
from hpcbench.submit.preview import Preview
from hpcbench.submit.reuse import (
    NAMED,
    Policy,
    in_words,
    known_answers,
    unmeasured,
    unmeasured_in_words,
    why_not,
)


@dataclass(frozen=True)
class Forecast:
    """The samples of a plan that earlier experiments answered."""

    samples: Mapping[str, int | None]
    """Run task → its samples; None: unknown."""
    reused: Mapping[str, Mapping[str, int]]
    """Run task → experiment → answers it gives; run tasks without any are left out."""
    shards: Mapping[str, int]
    """Run task → its shards with samples to ask."""
    all_asked: Mapping[str, str] = field(default_factory=dict)
    """Run task → why all of its samples are asked, whatever was answered before."""
    unmeasured: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Run task → its metrics for which answers of earlier experiments have no value."""
    assumed: tuple[str, ...] = ()
    """Images that submission looks up; the forecast takes them for the ones that were built here."""

    def asked(self, run_task: str) -> int | None:
        """Samples of a run task that will be asked; None: unknown."""
        count = self.samples[run_task]
        return None if count is None else count - sum(self.reused.get(run_task, {}).values())

    def lines(self) -> Iterator[str]:
        """The forecast for people."""
        experiments = Counter[str]()
        for counts in self.reused.values():
            experiments.update(counts)
        known = sum(count for count in self.samples.values() if count is not None)
        reasons: dict[str, list[str]] = {}
        for name, why in self.all_asked.items():
            reasons.setdefault(why, []).append(name)
        if experiments:
            yield in_words(experiments, sum(experiments.values()), known)
            yield from unmeasured_in_words(self.unmeasured)
            if self.assumed:
                yield f"this holds if {few(self.assumed, NAMED)} has not changed since it was built here"
        elif len(self.all_asked) < len(self.samples):
            yield f"asks all of {many(known, 'sample')}: no earlier experiment has an answer that fits"
        elif len(reasons) == 1:
            yield f"asks all of {many(known, 'sample')}: {next(iter(reasons))}"
            return
        for why, names in reasons.items():
            yield f"asks all samples of {few(names, NAMED)}: {why}"


def forecast(preview: Preview, policy: Policy) -> Forecast:
    """Look up the samples of a plan that are here. Only reads.

    Raises:
        UserError: a prompt cannot be built.
    """
    root, container = home(preview.resolved.site), preview.resolved.site.container
    samples = {one.name: preview.samples(one.name) for one in preview.resolved.run_tasks}
    wanted, all_asked = list[tuple[ResolvedRunTask, str]](), dict[str, str]()
    bases = _Bases(root, container, preview.resolved.packages)
    for run_task in preview.resolved.run_tasks:
        if run_task.name in preview.unknown:
            all_asked[run_task.name] = preview.unknown[run_task.name]
        elif why := why_not(run_task, policy, basis="not read yet"):
            all_asked[run_task.name] = why
        elif run_task.task.judge is not None:
            all_asked[run_task.name] = "only submission knows the answers that it rates"
        elif (basis := bases.of(run_task)) is None:
            all_asked[run_task.name] = bases.why(run_task)
        else:
            wanted.append((run_task, basis))
    opened: dict[str, DatasetIterator] = {}

    def dataset(run_task: ResolvedRunTask) -> DatasetIterator:
        key = run_task.dataset.model_dump_json()
        if key not in opened:
            opened[key] = open_dataset(run_task.dataset)
        return opened[key]

    known = known_answers(root, wanted, preview.measured.chosen, dataset)
    reused = {name: dict(one.experiments()) for name, one in known.items() if one.count}
    shards = Counter(
        shard.run_task
        for shard in preview.work.shards
        if shard.run_task not in known
        or (known[shard.run_task].chosen[shard.start : shard.stop] < 0).any()
    )
    tags = (one.model.image for one, _ in wanted if one.name in reused)
    assumed = tuple(one for one in dict.fromkeys(tags) if one in bases.assumed)
    lacking = unmeasured(preview.resolved.run_tasks, reused)
    return Forecast(samples, reused, shards, all_asked, lacking, assumed)


class _Bases:
    """Bases of run tasks, as far as they are known without building anything."""

    def __init__(
        self, root: Path, container: ContainerSite, packages: Mapping[str, Package]
    ) -> None:
        self._root, self._container = root, container
        self._packages = {name: known_identity(one) for name, one in packages.items()}
        self._models: dict[str, str] = {}
        self._environments: dict[str | None, Environment | None] = {}
        self.assumed: set[str] = set()
        """Images that were looked up among those that were built here."""

    def of(self, run_task: ResolvedRunTask) -> str | None:
        """The basis; None: not known."""
        image, source = run_task.model.image, run_task.model.source
        if not source or None in self._inside(run_task).values():
            return None
        if image not in self._environments:
            self._environments[image] = self._environment(image)
        environment = self._environments[image]
        if environment is None:
            return None
        if source not in self._models:
            self._models[source] = self._model(Path(source)) or ""
        return answer_basis(run_task, self._models[source], environment, self._packages_known)

    def why(self, run_task: ResolvedRunTask) -> str:
        """Why a basis is not known, in words."""
        model = run_task.model
        if not model.source:
            return f"model {model.name} has no weights here to hash"
        open_ = [name for name, one in self._inside(run_task).items() if one is None]
        if open_:
            return f"only submission looks at the source of package {few(open_, NAMED)}"
        if self._environments.get(model.image) is None:
            return f"{model.image or 'this Python'} was not prepared here before"
        return f"model {model.name} was not hashed here before"

    def _inside(self, run_task: ResolvedRunTask) -> dict[str, str | None]:
        """Package beside the engine → its identity; None: not known without its source."""
        return {name: self._packages.get(name) for name in run_task.engine_packages}

    @property
    def _packages_known(self) -> dict[str, str]:
        return {name: one for name, one in self._packages.items() if one is not None}

    def _model(self, folder: Path) -> str | None:
        try:
            return known_content_hash(
                folder, folder_files(folder), self._root / "cache" / "hashes.json"
            )
        except (HpcbenchError, OSError):
            return None

    def _environment(self, image: str | None) -> Environment | None:
        kind = environments.kind_of(image, self._container.manager)
        reference = image or ""
        if kind == "venv" or not reference:
            try:
                python, probed = probed_python(reference)
                return Environment("venv", str(python), None, versions=probed.versions)
            except HpcbenchError:
                return None
        _, at, digest = reference.rpartition("@")
        if at and digest.startswith("sha256:"):
            return Environment(kind, "", digest)
        cache, file = self._root / "cache", Path(reference)
        if file.suffix == ".sif":
            known = known_file_digest(file, cache) if file.is_file() else None
            return Environment(kind, "", known) if known is not None else None
        for built in built_images(cache):
            if kind == "apptainer" and built.record and built.record.reference == reference:
                self.assumed.add(reference)
                return Environment(kind, "", built.record.digest)
        return None
