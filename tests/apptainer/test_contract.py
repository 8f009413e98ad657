"""The contract of environments, for Apptainer and SingularityCE as an ordinary user has them."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite
from tests.cluster.lab import Lab
from tests.environments_contract import EnvironmentContract, Subject
from tests.user import User

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1200)]

PREPARE = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from hpcbench import environments
from hpcbench.schema.site import ContainerSite
found = environments.prepare(sys.argv[1], Path(sys.argv[2]), ContainerSite(**json.loads(sys.argv[3])))
print(json.dumps(asdict(found)))
"""


@dataclass(frozen=True)
class OfTheUser(Subject):
    """Programs are started as the ordinary user, whose the folder is; the tests themselves are root."""

    lab: Lab | None = None

    def spawn(self, command: Command) -> subprocess.Popen[bytes]:
        assert self.lab is not None
        for path in (self.folder, *self.folder.rglob("*")):
            if not path.is_symlink():
                shutil.chown(path, "hpcuser", "hpcuser")
        argv = self.lab.user_argv(list(command.argv))
        return super().spawn(Command(argv, {**self.lab.env(), **command.env}))


@pytest.fixture(scope="module")
def prepared() -> dict[Path, Environment]:
    """Program → its environment, prepared once for all tests."""
    return {}


class TestApptainer(EnvironmentContract):
    @pytest.fixture
    def subject(
        self,
        user: User,
        image: str,
        shared_cache: Path,
        program: Path,
        prepared: dict[Path, Environment],
    ) -> OfTheUser:
        site = {
            "program": str(program),
            "insecure_registries": [image.removeprefix("docker://").partition("/")[0]],
        }
        if program not in prepared:
            argv = [user.python, "-c", PREPARE, image, shared_cache, json.dumps(site)]
            done = user.lab.run_as_user(argv, timeout=900)
            assert done.returncode == 0, done.stderr
            prepared[program] = Environment(**json.loads(done.stdout.splitlines()[-1]))
        container = ContainerSite.model_validate(site)
        return OfTheUser(prepared[program], user.folder, container, lab=user.lab)
