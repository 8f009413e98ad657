"""Files that decide what an experiment's jobs execute are as its submitter wrote them.

Colleagues may write to a shared experiment, but not to `jobs/`: pickles and scripts in it can be changed by
the submitter only. `jobs/seal.json` holds hashes of the files outside it that name further code: image,
packages, shell lines of the site, copies of local packages. A user who can rename entries of the experiment's
folder can replace `jobs/` itself, so its owner is checked, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import is_foreign, others_write, owner_writes
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from hpcbench.files.hashing import hash_file


def seal(experiment: Experiment) -> None:
    """Write the hashes; once, when all files are written."""
    with owner_writes():
        write_json(experiment.seal_file, _hashes(experiment))


def seal_if_new(experiment: Experiment) -> None:
    """Write the hashes if they are missing and the experiment is not one of an older hpcbench."""
    if not experiment.seal_file.exists() and not others_write(experiment.jobs_dir):
        seal(experiment)


def check_seal(experiment: Experiment) -> None:
    """Check an experiment that other users may write to, before something of it is executed.

    Raises:
        EnvironmentFault: another user may have changed what would be executed.
    """
    if not others_write(experiment.path):
        return
    jobs = experiment.jobs_dir
    try:
        written = read_json(experiment.seal_file)
    except FileNotFoundError:
        written = None  # an older hpcbench made it, and let the group write to its jobs, too
    if is_foreign(jobs) or (written is not None and others_write(jobs)):
        raise EnvironmentFault(
            f"other users can change {jobs}, so its jobs are not executed",
            remedy="only the user who submitted an experiment submits its jobs; others `hpcbench rerun` it",
        )
    if written is None:
        return
    now = _hashes(experiment)
    if changed := sorted(
        name for name in written.keys() | now if written.get(name) != now.get(name)
    ):
        raise EnvironmentFault(
            f"{', '.join(changed)} of {experiment.id} changed after its submission",
            remedy="members of the group can write to a shared experiment: ask them, and submit it again",
        )
    for path in filter(Path.exists, _code(experiment)):
        if is_foreign(path):
            raise EnvironmentFault(
                f"{path} belongs to another user now, so its code is not executed",
                remedy="`hpcbench submit` builds your own copy",
            )


def _code(experiment: Experiment) -> Iterator[Path]:
    """Folders and files of a home's cache with Python code that its jobs import."""
    manifest = experiment.manifest
    named = [manifest.host_packages, manifest.snapshot]
    named += [one.get("packages") for one in manifest.environments.values()]
    yield from (Path(path) for path in named if path)


def _hashes(experiment: Experiment) -> dict[str, str]:
    """Name in the experiment → hash."""
    files = (experiment.resolved_file, experiment.manifest_file, experiment.kept_file)
    there = (path for path in files if path.exists())
    return {str(path.relative_to(experiment.path)): hash_file(path) for path in there}
