"""Lines of ours in crontab and scrontab; all other lines stay byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.main import main
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.site import crontab
from tests.conftest import ROOT
from tests.unit.command import Cli

FAKE = """\
#!/bin/sh
# A fake {name}, as Debian's cron and Slurm answer: the table is one file.
if [ "$1" = -l ]; then
  [ -e {table} ] || {{ echo "no crontab for user" >&2; exit 1; }}
  exec cat {table}
fi
exec cp "$1" {table}
"""

OTHERS = b"""# mine, by hand\r
MAILTO=me@example.org
*/5 * * * * date +\\%H >> /tmp/x # hpcbench:not ours
@daily\t/bin/true  # hpcbench: neither
"""


class Tables:
    """Fake tables of a user, and a home."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.home = folder / "bin", folder / "home"
        self.bin.mkdir()

    def path(self, name: str) -> Path:
        return self.bin.parent / f"{name}.table"

    def provide(self, name: str, text: bytes | None = None) -> Path:
        script = self.bin / name
        script.write_text(FAKE.format(name=name, table=self.path(name)))
        script.chmod(0o755)
        if text is not None:
            self.path(name).write_bytes(text)
        return self.path(name)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    found = Tables(tmp_path)
    # Nothing of the machine's own tables may be reached from here, should a test forget its fake.
    for tool in ("cat", "cp", "date", "find", "mkdir", "sh"):
        (found.bin / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setenv("PATH", str(found.bin))
    return found


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "my 100% plans" / "it's a plan.yaml"
    path.parent.mkdir()
    path.touch()
    return path


def install(
    tables: Tables, plan: Path, name: str = "nightly", at: str = "0 2 * * *", **more: object
) -> str:
    return crontab.install("crontab", name, plan, at, tables.home, **more)  # type: ignore[arg-type]


def test_a_line_comes_and_goes_and_the_others_stay_as_they_are(tables: Tables, plan: Path) -> None:
    table = tables.provide("crontab", OTHERS)
    install(tables, plan)
    assert table.read_bytes().startswith(OTHERS)
    assert table.read_bytes().endswith(b" # hpcbench:nightly\n")
    assert crontab.uninstall("crontab", "nightly", tables.home)
    assert table.read_bytes() == OTHERS
    assert not crontab.uninstall("crontab", "nightly", tables.home)


def test_where_there_was_no_table_one_is_made(tables: Tables, plan: Path) -> None:
    table = tables.provide("crontab")
    install(tables, plan)
    assert table.read_bytes().count(b"\n") == 1


def test_the_list_shows_what_runs_when(tables: Tables, plan: Path) -> None:
    tables.provide("crontab", OTHERS)
    install(tables, plan)
    install(tables, plan, "weekly", "@weekly")
    (tables.home / "cron").mkdir(parents=True)
    (tables.home / "cron" / "weekly-2026-11-21.log").touch()
    (tables.home / "cron" / "weekly-2026-11-22.log").touch()
    first, second = crontab.entries("crontab", tables.home)
    assert (first.name, first.at, first.plan) == ("nightly", "0 2 * * *", str(plan))
    assert first.log is None
    assert (second.at, second.log) == ("@weekly", str(tables.home / "cron/weekly-2026-11-22.log"))


def test_the_same_plan_again_changes_the_schedule(tables: Tables, plan: Path) -> None:
    table = tables.provide("crontab", OTHERS)
    install(tables, plan)
    install(tables, plan, at="30 4 * * sun")
    (entry,) = crontab.entries("crontab", tables.home)
    assert entry.at == "30 4 * * sun"
    assert table.read_bytes().startswith(OTHERS)


def test_a_name_is_not_taken_from_another_plan(tables: Tables, plan: Path) -> None:
    tables.provide("crontab")
    install(tables, plan)
    with pytest.raises(UserError, match="already submits"):
        install(tables, plan.with_name("other.yaml"))
    assert crontab.entries("crontab", tables.home)[0].plan == str(plan)


def test_a_percent_sign_is_escaped_and_the_line_does_what_it_says(
    tables: Tables, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run by the shell as cron would, with nothing in the environment; Python is a script that tells."""
    table = tables.provide("crontab")
    reported = tables.bin / "tell"
    reported.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$PWD" "$SLURM_CONF" "$HPCBENCH_HOME" "$PATH" "$@"\n'
    )
    reported.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(reported))
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm dir/slurm.conf")
    monkeypatch.setenv("HPCBENCH_HOME", str(tables.home))
    monkeypatch.setenv("https_proxy", "http://me:password@proxy:3128")
    install(tables, plan, options=("--set=run_tasks.0.limit=5",))
    line = table.read_text().rstrip("\n")
    assert "\\%" in line
    command = line.partition("* * * ")[2].replace("\\%", "%")
    done = subprocess.run(["/bin/sh", "-c", command], env={}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (log,) = (tables.home / "cron").glob("nightly-????-??-??.log")
    _, folder, conf, home, path, *arguments = log.read_text().splitlines()
    assert (folder, conf, home) == (str(plan.parent), "/etc/slurm dir/slurm.conf", str(tables.home))
    assert path == os.environ["PATH"]
    assert arguments == [
        "-m", "hpcbench.cli.main", "submit", str(plan), "--if-idle", "--set=run_tasks.0.limit=5",
    ]  # fmt: skip
    assert "password" not in crontab.script_file("nightly").read_text()


def test_a_line_has_what_the_terminal_had_to_reach_the_network_and_no_secret(
    tables: Tables, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.provide("crontab")
    plain = {
        "SSL_CERT_FILE": "/ours/ca.pem", "UV_INDEX": "https://mirror/simple", "PIP_CERT": "/ours/ca.pem",
        "HTTPS_PROXY": "http://proxy:3128", "HF_ENDPOINT": "https://hub.ours", "SBATCH_ACCOUNT": "docs",
        "XDG_CACHE_HOME": "/scratch", "APPTAINER_CACHEDIR": "/scratch/sif", "LD_LIBRARY_PATH": "/sw/lib",
    }  # fmt: skip
    secrets = {
        "HF_TOKEN": "hf_abcdefgh", "PIP_INDEX_URL": "https://me:geheim@mirror/simple", "http_proxy": "http://me:pw@p",
        "APPTAINER_DOCKER_PASSWORD": "geheim",
    }  # fmt: skip
    others = {
        "TMPDIR": "/tmp/7",
        "SLURM_JOB_ID": "7",
        "XDG_RUNTIME_DIR": "/run/user/7",
        "EDITOR": "vi",
        "API_KEY": "geheim",
    }
    for name, value in {**plain, **secrets, **others}.items():
        monkeypatch.setenv(name, value)
    install(tables, plan)
    script = crontab.script_file("nightly").read_text()
    for name, value in plain.items():
        assert f"export {name}={value}\n" in script
    for name in {**secrets, **others}:
        assert f"export {name}=" not in script
    assert crontab.left_out() == sorted(secrets)


def test_old_logs_go(tables: Tables, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tables.provide("crontab")
    monkeypatch.setattr("sys.executable", "/bin/true")
    install(tables, plan)
    old, other = (
        tables.home / "cron" / name for name in ("nightly-2020-01-01.log", "nightly.sh.log")
    )
    old.parent.mkdir(parents=True)
    for path in (old, other):
        path.touch()
        os.utime(path, (0, 0))
    command = table.read_text().partition("* * * ")[2].replace("\\%", "%")
    subprocess.run(["/bin/sh", "-c", command], check=True, env={"PATH": "/usr/bin:/bin"})
    assert not old.exists()
    assert other.exists()


def test_another_scheduler_starts_a_script_that_needs_no_line(
    tables: Tables, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = tables.bin / "tell"
    reported.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 4\n')
    reported.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(reported))
    before = os.umask(0o007)
    try:
        script, text = crontab.write_script(
            "nightly", plan, tables.home, ("--baseline=main",), verb="regress"
        )
    finally:
        os.umask(before)
    assert not script.is_relative_to(tables.home), "colleagues may write to a shared home"
    assert script.stat().st_mode & 0o777 == 0o700
    assert not script.parent.stat().st_mode & 0o022
    # As a timer of systemd starts it: no argument, nothing in the environment.
    done = subprocess.run([script], check=False, env={"PATH": "/usr/bin:/bin"}, cwd="/")
    assert done.returncode == 4
    (entry,) = crontab.scripts(tables.home)
    assert (entry.name, entry.plan, entry.table) == ("nightly", str(plan), "script")
    assert entry.log is not None
    wanted = ["-m", "hpcbench.cli.main", "regress", str(plan), "--next", "--baseline=main"]
    assert Path(entry.log).read_text().splitlines()[1:] == wanted
    with pytest.raises(UserError, match="already submits"):
        crontab.write_script("nightly", plan.with_name("other.yaml"), tables.home)
    assert crontab.remove_script("nightly")
    assert crontab.scripts(tables.home) == []


def test_a_dry_run_shows_it_and_changes_nothing(tables: Tables, plan: Path) -> None:
    table = tables.provide("crontab", OTHERS)
    shown = install(tables, plan, dry_run=True)
    assert "# hpcbench:nightly" in shown
    assert "--if-idle" in shown
    assert table.read_bytes() == OTHERS
    assert not tables.home.exists()


def test_slurms_own_table_gets_the_options_of_its_job(tables: Tables, plan: Path) -> None:
    others = b"#SCRON --time=5\n@hourly /bin/true\n"
    table = tables.provide("scrontab", others)
    options = ("--partition=cpu", "--time=01:00:00")
    for _ in range(2):
        crontab.install("scrontab", "n", plan, "@daily", tables.home, slurm_options=options)
        lines = table.read_text().removeprefix(others.decode()).splitlines()
        assert lines[:2] == ["#SCRON --partition=cpu", "#SCRON --time=01:00:00"]
        assert len(lines) == 3
    assert crontab.uninstall("scrontab", "n", tables.home)
    assert table.read_bytes() == others


def test_where_there_is_no_cron_it_says_what_there_is(tables: Tables, plan: Path) -> None:
    with pytest.raises(
        EnvironmentFault, match="no crontab on this machine.*`hpcbench cron script PLAN`"
    ):
        install(tables, plan)
    tables.provide("scrontab")
    with pytest.raises(EnvironmentFault, match="with --scron"):
        install(tables, plan)
    assert crontab.entries("crontab", tables.home) == []


def test_what_the_cluster_forbids_is_reported(tables: Tables, plan: Path) -> None:
    script = tables.bin / "scrontab"
    script.write_text("#!/bin/sh\necho 'scrontab: fatal: scrontab is disabled' >&2; exit 1\n")
    script.chmod(0o755)
    with pytest.raises(EnvironmentFault, match="disabled.*ScronParameters=enable"):
        crontab.install("scrontab", "n", plan, "@daily", tables.home)


def test_a_table_that_is_edited_meanwhile_is_left_alone(tables: Tables, plan: Path) -> None:
    table = tables.provide("crontab", OTHERS)
    with pytest.raises(EnvironmentFault, match="has just changed"):
        crontab._replace("crontab", b"as it was\n", b"ours\n")
    assert table.read_bytes() == OTHERS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0 2 * *", "4 fields instead of five"),
        ("60 2 * * *", "minute '60': 60 is not in 0-59"),
        ("0 24 * * *", "hour '24'"),
        ("0 0 0 * *", "day of the month '0'"),
        ("0 0 1 13 *", "month '13'"),
        ("0 0 * * 8", "day of the week '8'"),
        ("0 0 * * noday", "day of the week 'noday'"),
        ("5-1 * * * *", "5 comes after 1"),
        ("*/0 * * * *", "a step of 0"),
        ("5/10 * * * *", "a step needs"),
        ("@reboot", "not one of @hourly"),
        ("0 2 * * * rm", "6 fields"),
        ("1,,2 * * * *", "minute '1,,2'"),
        ("", "0 fields"),
    ],
)
def test_a_bad_schedule_is_refused_with_the_part_that_is_wrong(text: str, why: str) -> None:
    with pytest.raises(UserError) as caught:
        crontab.schedule(text)
    assert why in str(caught.value)
    assert "0 2 * * *" in str(caught.value)


def field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    ranges = st.tuples(number, number).map(lambda two: f"{min(two)}-{max(two)}")
    steps = st.tuples(st.one_of(st.just("*"), ranges), st.integers(1, most)).map(
        lambda two: f"{two[0]}/{two[1]}"
    )
    one = st.one_of(st.just("*"), number.map(str), ranges, steps)
    return st.lists(one, min_size=1, max_size=3).map(",".join)


@given(
    st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)),
    st.sampled_from([" ", "  ", "\t"]),
)
def test_every_schedule_of_cron_is_taken(fields: tuple[str, ...], space: str) -> None:
    assert crontab.schedule(space.join(fields)) == " ".join(fields)


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=6))
def test_a_table_without_lines_of_ours_is_never_touched(lines: list[bytes]) -> None:
    text = b"\n".join(lines)
    ours = b"0 2 * * * /bin/sh x y # hpcbench:mine\n"
    assert crontab.without(text, "mine") == text
    if not text or text.endswith(b"\n"):
        last = text.splitlines()[-1:] or [b""]
        if not last[0].startswith(b"#SCRON"):
            assert crontab.without(text + ours, "mine") == text


def test_the_verbs_install_list_and_remove(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    tables.provide("crontab")
    monkeypatch.setenv("HPCBENCH_HOME", str(tables.home))
    demo = ROOT / "examples" / "demo" / "plan.yaml"
    assert main(["cron", "install", str(demo), "--at", "0 2 * * *"]) == 0
    assert f"demo  0 2 * * *  {demo}" in cli("cron", "list")
    assert main(["cron", "remove", "demo"]) == 0
    assert main(["cron", "remove", "demo"]) == 2
    assert main(["cron", "install", str(demo), "--at", "0 25 * * *"]) == 2
    assert main(["cron", "install", "/none.yaml", "--at", "@daily"]) == 2
