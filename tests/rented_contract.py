"""The contract of environments on rented machines; two things they cannot do, or only they can tell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.environments_contract import EnvironmentContract, Subject
from tests.rented import Rig


class RentedContract(EnvironmentContract):
    @pytest.fixture
    def subject(self, rig: Rig, tmp_path: Path) -> Subject:
        (tmp_path / "run").mkdir()
        return Subject(
            rig.prepare(), tmp_path / "run", rig.site(), leftovers=lambda mark: rig.left()
        )

    def test_what_is_mounted_may_be_written_and_read_only_not(self, subject: Subject) -> None:
        """A container of RunPod may mount nothing: what is written to a copy stays there instead."""
        writable, data = subject.folder / "writable", subject.folder / "data"
        writable.mkdir()
        data.mkdir()
        (data / "file").write_text("read")
        code = (
            "print(open('/data/file').read())\n"
            "open('/data/made', 'w').write('x')\n"
            f"open({str(writable / 'made')!r}, 'w').write('written')\n"
        )
        done = subject.run(code, [str(writable), f"{data}:/data:ro"])
        assert done.stdout == b"read\n", done.stderr
        assert (writable / "made").read_text() == "written"
        assert [path.name for path in data.iterdir()] == ["file"]

    def test_python_is_the_environments_own(self, subject: Subject) -> None:
        """Which it is, `prepare` cannot know; the fake's image has that of the tests."""
        done = subject.run("import sys; print(sys.executable)")
        assert Path(done.stdout.decode().strip()).parent == Path(sys.executable).parent
