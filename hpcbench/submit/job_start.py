"""First step of a job: submitit, with a folder of pickles that only the submitter can have written.

Slurm, or the local executor, calls `python -m hpcbench.submit.job_start -u -m submitit.core._submit FOLDER`:
submitit writes all that follows the module's name. A pickle is code, and where colleagues may rename entries
of an experiment's folder, FOLDER may be another folder by now.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import NOBODY


def main(argv: Sequence[str]) -> None:
    """Run the job whose pickle is in the folder that is the last argument.

    Raises:
        SystemExit: with code 3: the folder belongs to another user.
    """
    # All later steps use the checked folder, whatever gets its name meanwhile.
    folder = os.open(argv[-1], os.O_RDONLY | os.O_DIRECTORY)
    owner = os.fstat(folder).st_uid
    if owner not in (os.geteuid(), 0, NOBODY):
        sys.exit(_refused(argv[-1], owner))
    sys.argv = [sys.argv[0], f"/proc/self/fd/{folder}"]
    # submitit imports numpy if it can, for pickles with arrays: ours hold a few strings, and on a busy shared
    # file system numpy alone may take seconds.
    sys.modules["numpy"] = None  # type: ignore[assignment]
    from submitit.core.submission import submitit_main

    del sys.modules["numpy"]
    submitit_main()


def _refused(folder: str, owner: int) -> int:
    text = f"{folder} belongs to user {owner}, not to the user of this job: its pickles are not executed"
    print(text, file=sys.stderr)  # noqa: T201 - the job's log
    return EnvironmentFault.exit_code


if __name__ == "__main__":
    main(sys.argv[1:])
