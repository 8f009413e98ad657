"""Content of `manifest.json`: one type for submit and imports, which write it, and for all readers.

Defaults are the meaning of a member that an earlier version did not write. `Experiment.work` and
`Experiment.measured` decode the two parts with types of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, TypedDict


class Commit(TypedDict):
    """Commit of a checkout."""

    commit: str
    dirty: bool
    """Whether its folder had changes since."""


class Git(TypedDict):
    """Checkouts; None: the folder is in none."""

    plan: Commit | None
    hpcbench: Commit | None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Content of `manifest.json`."""

    version: int = 0
    """`MANIFEST_VERSION` of its writer; 0: not recorded."""
    id: str = ""
    created: str = ""
    """Local time of preparation with its offset, `2026-11-26T10:54:25+0000`."""
    host: str = ""
    hpcbench: str = ""
    """Version of hpcbench."""
    python: str = ""
    """Version of Python."""
    executable: str = ""
    """Path of this Python."""
    packages: Mapping[str, str | None] = field(default_factory=dict)
    """Python package beside hpcbench → version; None: not installed."""
    git: Git = field(default_factory=lambda: Git(plan=None, hpcbench=None))
    plan_key: str = ""
    """See `submit/manifest.py`; for an import, the identity of its files and options."""
    seed: int | None = None
    """The plan's seed."""
    mode: str = "prod"
    """RUN_MODE."""
    settings: Sequence[str] = ()
    """Settings of the command line."""
    baseline: str | None = None
    """The plan's baseline."""
    host_packages: str | None = None
    """Folder of the plan's packages for this Python."""
    plugin_packages: Mapping[str, str] = field(default_factory=dict)
    """Package of the plan → its source: a commit, a hash, a version."""
    locks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Environment with packages of the plan → what was installed there; the host's key is empty."""
    stage_keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Run task → stage → key of its inputs, see `planning.stage_key`."""
    answer_bases: Mapping[str, str | None] = field(default_factory=dict)
    """Run task → `planning.answer_basis`; None: it has none."""
    environments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Key of an environment → fields of its `plugins.Environment`."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Run task → name of its prompt."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Measured` without `chosen`, which has a file of its own."""
    work: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `WorkPlan`."""
    reuse: Literal["none", "greedy", "sampled"] = "none"
    """Which answers of earlier experiments submission takes over, see `submit/reuse.py`."""
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Run task → tools of its agents, see `submit/agent_tools.py`."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """`datasets/NAME` or `models/NAME` → its URL, where data were fetched."""
    site_of_machine: bool = True
    """Whether the site profile belongs to the machine and did not come with the plan."""
    fingerprint: Mapping[str, Any] | None = None
    """Fields of the `Fingerprint` of the environment that jobs run in; None: not recorded."""
    snapshot: str | None = None
    """Folder of the copy of the environment that jobs run in; None: they run in submit's own."""
    imported: Mapping[str, Any] | None = None
    """Origin of answers of another kit; None: hpcbench asks the models."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Manifest:
        """The manifest of a result of `to_json`, of any version; unknown members are left out."""
        known = {name: one for name in _NAMES if (one := data.get(name)) is not None}
        git = known.pop("git", {})
        checkouts = Git(plan=_commit(git.get("plan")), hpcbench=_commit(git.get("hpcbench")))
        return cls(**known, git=checkouts)

    @property
    def moment(self) -> datetime | None:
        """`created` as a time; None: it is not recorded, or not in that form."""
        try:
            return datetime.strptime(self.created, "%Y-%m-%dT%H:%M:%S%z")
        except (TypeError, ValueError):
            return None

    def to_json(self, left_out: Collection[str] = ()) -> dict[str, Any]:
        """As plain data; `imported` only in imports.

        Args:
            left_out: members that are not known.
        """
        known = {name: getattr(self, name) for name in _NAMES if name not in left_out}
        if self.imported is None:
            del known["imported"]
        return known


_NAMES = tuple(one.name for one in fields(Manifest))


def _commit(data: Mapping[str, Any] | None) -> Commit | None:
    """A commit as any version wrote it; None: there is none."""
    if not data or not data.get("commit"):
        return None
    return Commit(commit=data["commit"], dirty=bool(data.get("dirty")))
