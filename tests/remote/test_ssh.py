"""`hpcbench --site NAME` over a real sshd; "there" is this machine with a home of experiments of its own."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hpcbench.cli import at_site
from hpcbench.cli.main import main
from hpcbench.errors import EnvironmentFault
from hpcbench.remote.login_node import LoginNode
from hpcbench.schema.site import Site, SshSite
from hpcbench.ssh import connection as connection_module
from hpcbench.ssh.remote_command import Dropped, NoCommand
from tests.help_examples import example
from tests.remote.cutter import Cutter
from tests.remote.ssh_home import give_ssh_a_home
from tests.remote.sshd import Sshd, new_key
from tests.remote.two_factor import TwoFactor
from tests.unit.earlier import WHOLE, unpack

USER = getpass.getuser()


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd.make(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own: no keys, no agent, no configuration."""
    home = tmp_path / "laptop"
    give_ssh_a_home(home, monkeypatch)
    monkeypatch.setenv("HPCBENCH_HOME", str(home / "hpcbench"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The cluster's side: a home of experiments, and the hpcbench that uses it."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    command = folder / "hpcbench"
    command.write_text(
        "#!/bin/sh\n"
        f"export HPCBENCH_HOME={folder}/home XDG_CONFIG_HOME={folder}/config\n"
        f'exec {sys.executable} -m hpcbench.cli.main "$@"\n'
    )
    command.chmod(0o755)
    return folder


def site(sshd: Sshd, there: Path | None = None, **fields: object) -> SshSite:
    known = sshd.folder / "known"
    known.write_text(sshd.known)
    given = {
        "host": "127.0.0.1",
        "user": USER,
        "port": sshd.port,
        "identity": str(sshd.folder / "user"),
        "known_hosts": str(known),
        "hpcbench": str(there / "hpcbench") if there is not None else "hpcbench",
        **fields,
    }
    return SshSite.model_validate({key: value for key, value in given.items() if value is not None})


def profile(laptop: Path, ssh: SshSite, name: str = "lab") -> None:
    path = laptop / "config" / "hpcbench" / "sites" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"schema_version": 1, "name": name, "ssh": ssh.model_dump(exclude_none=True)}
    path.write_text(yaml.safe_dump(data))


def output(connection: LoginNode, *argv: str) -> tuple[bytes, int]:
    with connection.start(argv) as running:
        return b"".join(iter(running.read, b"")), running.code()


ON_A_TERMINAL = """
import sys
from hpcbench.errors import EnvironmentFault
from hpcbench.remote.login_node import LoginNode
from hpcbench.schema.site import SshSite
try:
    with LoginNode(SshSite.model_validate_json(sys.argv[1])) as connection:
        for _ in range(2):
            with connection.start(["echo", "here"]) as running:
                print(b"".join(iter(running.read, b"")).decode(), end="")
                print(running.code(), end=" ", flush=True)
except EnvironmentFault as error:
    print(error)
"""


def on_a_terminal(given: SshSite, prompt: str, *answers: str) -> str:
    """Terminal of two commands over one connection, where prompts are answered."""
    pid, terminal = pty.fork()
    if pid == 0:
        argv = [sys.executable, "-c", ON_A_TERMINAL, given.model_dump_json()]
        os.execv(sys.executable, argv)  # noqa: S606 - no shell is wanted
    shown, left = b"", [answer.encode() for answer in answers]
    asked = prompt.encode()
    with contextlib.suppress(OSError):  # how a terminal ends
        while piece := os.read(terminal, 4096):
            shown += piece
            if left and shown.count(asked) > len(answers) - len(left):
                os.write(terminal, left.pop(0) + b"\n")
    os.waitpid(pid, 0)
    os.close(terminal)
    assert not left, shown
    return shown.decode()


# --- connecting ----------------------------------------------------------------------------------------


def test_a_command_gets_its_words_as_they_are_and_its_code_comes_back(
    laptop: Path, sshd: Sshd
) -> None:
    words = ["a b", "$HOME", "'", '"', "`id`", "*", "", "\\", "é", "; exit 7", "\n"]
    with LoginNode(site(sshd)) as connection:
        reported, code = output(
            connection, sys.executable, "-c", "import sys; print(sys.argv[1:])", *words
        )
        assert reported.decode() == f"{words}\n"
        assert code == 0
        assert output(connection, "sh", "-c", "exit 4")[1] == 4


def test_what_profiles_print_is_not_taken_for_output(
    laptop: Path, sshd: Sshd, tmp_path: Path
) -> None:
    # The shell there reads $BASH_ENV, which sshd sets from the key's own options.
    (tmp_path / "noise").write_text("echo Welcome to the cluster; echo really >&2\n")
    options = f'environment="BASH_ENV={tmp_path}/noise" '
    authorized, before = sshd.folder / "authorized", (sshd.folder / "authorized").read_text()
    server = Sshd.make(tmp_path / "noisy")
    (server.folder / "authorized").write_text(options + (server.folder / "user.pub").read_text())
    with (server.folder / "config").open("a") as config:
        config.write("PermitUserEnvironment yes\n")
    assert authorized.read_text() == before
    with server, LoginNode(site(server)) as connection:
        assert output(connection, "echo", "answer") == (b"answer\n", 0)


def test_nothing_of_this_machines_environment_goes_there(
    laptop: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("LC_ALL", "C")
    with LoginNode(site(sshd)) as connection:
        reported, _ = output(connection, "env")
    assert b"HF_TOKEN" not in reported
    assert b"LC_ALL" not in reported


def test_a_host_that_is_not_known_is_refused_with_its_key_and_a_remedy(
    laptop: Path, sshd: Sshd
) -> None:
    with (
        LoginNode(site(sshd, known_hosts=None)) as connection,
        pytest.raises(EnvironmentFault, match=r"is not in known_hosts.*SHA256:.*ssh-keyscan -p"),
    ):
        connection.start(["true"])


def test_a_host_with_another_key_is_refused(laptop: Path, sshd: Sshd) -> None:
    other = new_key(laptop / "other").with_suffix(".pub").read_text().split()[:2]
    (laptop / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {' '.join(other)}\n")
    with (
        LoginNode(site(sshd, known_hosts=None)) as connection,
        pytest.raises(EnvironmentFault, match=r"has changed.*ssh-keygen -R"),
    ):
        connection.start(["true"])


def test_a_revoked_key_is_refused_though_it_is_known(laptop: Path, sshd: Sshd) -> None:
    key = sshd.known.split(" ", 1)[1]
    (laptop / ".ssh/known_hosts").write_text(f"@revoked * {key}")
    with LoginNode(site(sshd)) as connection, pytest.raises(EnvironmentFault, match="revoked"):
        connection.start(["true"])


def test_ssh_config_says_how_an_alias_is_reached(laptop: Path, sshd: Sshd) -> None:
    (laptop / ".ssh/known_hosts").write_text(sshd.known)
    (laptop / ".ssh/more").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  User {USER}\n  IdentityFile {sshd.folder}/user\n"
    )
    (laptop / ".ssh/config").write_text(f"Include more\nHost *\n  Port {sshd.port}\n")
    with LoginNode(SshSite(host="lab")) as connection:
        assert output(connection, "echo", "here") == (b"here\n", 0)


def test_the_agent_gives_the_key(
    laptop: Path, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sock = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(sock)], stdout=subprocess.DEVNULL)
    try:
        while not sock.exists():
            time.sleep(0.02)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        subprocess.run(["ssh-add", "-q", str(sshd.folder / "user")], check=True)
        with LoginNode(site(sshd, identity=None)) as connection:
            assert output(connection, "echo", "here") == (b"here\n", 0)
    finally:
        agent.kill()
        agent.wait()


def test_no_key_is_refused_in_one_line(laptop: Path, sshd: Sshd) -> None:
    with (
        LoginNode(site(sshd, identity=None), terminal=False) as connection,
        pytest.raises(EnvironmentFault, match="refuses the login .*ssh-add"),
    ):
        connection.start(["true"])


def test_a_key_with_a_passphrase_is_not_asked_for_without_a_terminal(
    laptop: Path, sshd: Sshd
) -> None:
    new_key(laptop / "locked", "secret")
    given = site(sshd, identity=str(laptop / "locked"))
    with (
        LoginNode(given, terminal=False) as connection,
        pytest.raises(EnvironmentFault, match="ssh-add .*locked.: the key has a passphrase"),
    ):
        connection.start(["true"])


def test_on_a_terminal_a_passphrase_is_asked_for(laptop: Path, sshd: Sshd) -> None:
    key = laptop / "locked"
    shutil.copy(sshd.folder / "user", key)
    words = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    shown = on_a_terminal(site(sshd, identity=str(key)), "passphrase for key", "secret")
    assert shown.endswith("here\r\n0 here\r\n0 ")
    assert "secret" not in shown


def test_jump_hosts_are_gone_through_one_after_the_other(
    laptop: Path, sshd: Sshd, tmp_path: Path
) -> None:
    with Sshd.make(tmp_path / "first") as first, Sshd.make(tmp_path / "second") as second:
        known = "".join(server.known for server in (first, second, sshd))
        (laptop / ".ssh/known_hosts").write_text(known)
        (laptop / ".ssh/config").write_text(
            f"Host first\n  HostName 127.0.0.1\n  Port {first.port}\n  IdentityFile {first.folder}/user\n"
            f"Host second\n  HostName 127.0.0.1\n  Port {second.port}\n"
            f"  IdentityFile {second.folder}/user\n"
        )
        jump = f"{USER}@first,{USER}@second"
        with LoginNode(site(sshd, known_hosts=None, jump=jump)) as connection:
            assert output(connection, "echo", "here") == (b"here\n", 0)
        assert "Accepted publickey" in first.log
        assert "Accepted publickey" in second.log


def test_a_jump_host_that_is_not_known_is_refused_too(
    laptop: Path, sshd: Sshd, tmp_path: Path
) -> None:
    with Sshd.make(tmp_path / "first") as first:
        given = site(sshd, jump=f"127.0.0.1:{first.port}")
        with (
            LoginNode(given) as connection,
            pytest.raises(EnvironmentFault, match=f"{first.port} is not in known_hosts"),
        ):
            connection.start(["true"])


def test_a_server_that_is_not_there_and_a_command_that_is_not_there_are_reported(
    laptop: Path, sshd: Sshd
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with (
            LoginNode(site(sshd, port=port)) as connection,
            pytest.raises(EnvironmentFault, match="cannot reach 127.0.0.1"),
        ):
            connection.start(["true"])
    missing = "cannot run /no/such/hpcbench: .*install hpcbench-vlm on the host"
    with (
        LoginNode(site(sshd, hpcbench="/no/such/hpcbench")) as connection,
        connection.hpcbench("list") as running,
    ):
        assert running.read() == b""
        with pytest.raises(NoCommand, match=missing):
            running.code()


def test_a_cut_connection_is_made_again_and_the_work_done_again(
    laptop: Path, sshd: Sshd, cutter: Cutter
) -> None:
    cutter.to, cutter.cut_after = sshd.port, 60_000
    known = sshd.folder / "known-cut"
    known.write_text(sshd.known_as(cutter.port))
    said: list[str] = []
    tries: list[int] = []
    with LoginNode(site(sshd, port=cutter.port, known_hosts=str(known))) as connection:

        def work() -> int:
            tries.append(1)
            if len(tries) == 3:
                cutter.cut_after = None
                connection.close()
            return len(output(connection, "head", "-c", "200000", "/dev/zero")[0])

        assert connection.persist(work, said.append, patience=20) == 200_000
    assert cutter.cuts == 2
    assert all("the connection broke" in line for line in said)


def test_without_anybody_there_any_more_patience_ends(
    laptop: Path, sshd: Sshd, tmp_path: Path
) -> None:
    server = Sshd.make(tmp_path / "short")
    server.start()
    with LoginNode(site(server)) as connection:

        def work() -> None:
            output(connection, "true")
            server.stop()
            connection.close()
            raise Dropped("it went away")

        with pytest.raises(EnvironmentFault, match="cannot reach"):
            connection.persist(work, lambda line: None, patience=1)


def test_an_exit_with_255_is_the_commands_unless_the_connection_is_gone(
    laptop: Path, tmp_path: Path
) -> None:
    with Sshd.make(tmp_path / "own") as server, LoginNode(site(server)) as connection:
        assert output(connection, "sh", "-c", "exit 255") == (b"", 255)
        assert output(connection, "sh", "-c", "kill -9 $$") == (b"", 255)
        with connection.start(["sleep", "600"]) as running:
            server.drop_sessions()
            with pytest.raises(Dropped, match="the connection broke"):
                running.code()
        assert output(connection, "echo", "again") == (b"again\n", 0)


def test_many_errors_do_not_stop_a_command_whose_output_is_awaited(
    laptop: Path, sshd: Sshd
) -> None:
    command = ["sh", "-c", "head -c 4000000 /dev/zero >&2; echo done"]
    with LoginNode(site(sshd)) as connection, connection.start(command) as running:
        assert running.read() == b"done\n"
        assert running.code() == 0
        assert len(running.errors()) == 4_000_000


def test_many_commands_log_in_once_and_nothing_is_left_afterwards(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = Path(tempfile.mkdtemp())  # short enough for a socket
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with Sshd.make(tmp_path / "own") as server:
        with LoginNode(site(server)) as connection:
            for _ in range(5):
                assert output(connection, "true") == (b"", 0)
            (folder,) = temporary.iterdir()
            assert folder.stat().st_mode & 0o777 == 0o700
        assert server.log.count("Accepted publickey") == 1
        assert not connection.lives()
    temporary.rmdir()


def test_a_connection_whose_program_was_killed_ends_by_itself(
    laptop: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "IDLE_SECONDS", 5)
    with LoginNode(site(sshd)) as connection:
        connection.connect()
        assert connection.lives()
        deadline = time.monotonic() + 60
        time.sleep(7)  # each look counts as a use
        while connection.lives():
            assert time.monotonic() < deadline
            time.sleep(7)


def test_a_control_master_of_the_user_is_used_and_left_open(laptop: Path, tmp_path: Path) -> None:
    with Sshd.make(tmp_path / "own") as server:
        (laptop / ".ssh/known_hosts").write_text(server.known)
        config = laptop / ".ssh/config"
        config.write_text(
            f"Host lab\n  HostName 127.0.0.1\n  Port {server.port}\n  User {USER}\n"
            f"  IdentityFile {server.folder}/user\n  ControlPath {laptop}/.ssh/%n\n"
        )
        ssh = ["ssh", "-F", str(config), "-o", "ControlPersist=60"]
        subprocess.run([*ssh, "-M", "-f", "-N", "lab"], check=True, stderr=subprocess.DEVNULL)
        try:
            with LoginNode(SshSite(host="lab")) as connection:
                assert output(connection, "echo", "here") == (b"here\n", 0)
            assert server.log.count("Accepted publickey") == 1
        finally:
            subprocess.run([*ssh, "-O", "exit", "lab"], check=True, stderr=subprocess.DEVNULL)


# --- the verbs -----------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    reported = capsys.readouterr()
    return code, reported.out, reported.err


@pytest.fixture
def lab(laptop: Path, there: Path, sshd: Sshd) -> SshSite:
    """A profile `lab` of the cluster on the laptop."""
    given = site(sshd, there)
    profile(laptop, given)
    return given


def experiment(there: Path, report: bytes = b"<html>") -> Path:
    """An experiment over there that has ended, as far as `report` looks at it."""
    folder = there / "home" / "experiments" / "20261120-1432-demo-aaaa"
    (folder / "report" / "plots").mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    (folder / "report/report.html").write_bytes(report)
    (folder / "report/plots/a.png").write_bytes(b"png")
    return folder


def write_plan(laptop: Path, **dataset: object) -> Path:
    """A plan over a dataset of the laptop, with a registry of its own beside it."""
    data = laptop / "data"
    if not data.exists():
        data.mkdir()
        (data / "p.png").write_bytes(b"x")
        record = {
            "id": "s1", "images": ["p.png"], "document": "d1", "fields": {"question": "1?"},
            "references": ["1"],
        }  # fmt: skip
        (data / "a.jsonl").write_text(json.dumps(record) + "\n")
    definitions = laptop / "registries" / "datasets"
    definitions.mkdir(parents=True, exist_ok=True)
    (definitions / "mine.yaml").write_text(
        yaml.safe_dump(
            {"schema_version": 1, "name": "mine", "source": "../../data",
             "annotations": "a.jsonl", "fields": ["question"], **dataset}
        )
    )  # fmt: skip
    task = {
        "name": "vqa", "ml_task": "vqa", "model": "tiny-vlm", "dataset": "mine", "prompt": "demo_vqa",
        "generation": {"max_tokens": 96},
    }  # fmt: skip
    plan = laptop / "plan.yaml"
    plan.write_text(yaml.safe_dump({"schema_version": 1, "name": "far", "run_tasks": [task]}))
    return plan


def test_init_tries_the_connection_and_writes_a_profile(
    laptop: Path, there: Path, sshd: Sshd, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(sshd.folder / "user", laptop / ".ssh/id_ed25519")
    own = {"NAME": "lab", "USER@HOST": f"{USER}@127.0.0.1:{sshd.port}"}
    words = example("init --site NAME --ssh USER@HOST", own)
    words += ["--set", f"ssh.hpcbench={there}/hpcbench"]
    code, _, err = run(capsys, *words)
    assert code == 3
    assert "ssh-keyscan" in err
    assert not (laptop / "config").exists()
    (laptop / ".ssh/known_hosts").write_text(sshd.known)
    assert run(capsys, *words)[0] == 0
    assert run(capsys, "--site", "lab", "list")[1].startswith("no experiments in")
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "--force" in err


def test_a_verb_runs_there_and_its_code_comes_back(
    lab: SshSite, there: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "--json", "--site", "lab"]) == 0
    assert json.loads(capfd.readouterr().out) == []
    assert main(["status", "nothing", "--site", "lab"]) == 2
    assert "nothing" in capfd.readouterr().err
    assert main(["usage", "--all", "--site", "lab"]) == 0
    assert capfd.readouterr().out == "no job has used resources yet\n"
    assert main(["gc", "--older", "1", "--dry-run", "--json", "--site", "lab"]) == 0
    assert json.loads(capfd.readouterr().out)["experiments"] == []


def test_a_dry_run_is_that_of_the_cluster_and_a_second_one_sends_nothing(
    lab: SshSite, laptop: Path, there: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(laptop)
    assert main(["submit", str(plan), "--dry-run", "--json", "--site", "lab"]) == 0
    reported = capfd.readouterr()
    assert json.loads(reported.out)["samples"] == {"vqa": 1}
    assert re.search(r"sent (?!0 )\d+ bytes of \d+ bytes to 127.0.0.1", reported.err)
    assert main(["submit", str(plan), "--dry-run", "--json", "--site", "lab"]) == 0
    assert "sent 0 bytes" in capfd.readouterr().err
    assert not (laptop / "hpcbench/experiments").exists()


def test_a_mistake_that_only_the_cluster_sees_is_reported_at_the_laptops_file(
    lab: SshSite, laptop: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(laptop, annotations="none.jsonl")
    assert main(["submit", str(plan), "--site", "lab"]) == 2
    err = capfd.readouterr().err
    assert f"{laptop}/data" in err
    assert "/remote/" not in err


def test_another_version_there_is_refused_with_both(
    lab: SshSite, laptop: Path, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (there / "hpcbench").read_text()
    (there / "hpcbench").write_text(
        text.replace("exec", '[ "$1" = remote ] && exit 2; echo hpcbench 99.1.0; exit; exec')
    )
    code, _, err = run(capsys, "submit", write_plan(laptop), "--site", "lab")
    assert code == 3
    assert "0.1.0 here and 99.1.0" in err


def test_a_report_is_fetched_and_again_only_what_changed(
    lab: SshSite, there: Path, laptop: Path
) -> None:
    folder = experiment(there)
    ssh = lab.model_copy()
    with LoginNode(ssh) as connection:
        profiled = Site(name="lab", ssh=ssh)
        place = at_site._fetched(connection, profiled, "@last", None)
        assert place == laptop / "hpcbench/remote/lab" / folder.name / "report"
        assert (place / "report.html").read_bytes() == b"<html>"
        assert (place / "plots/a.png").read_bytes() == b"png"
        (folder / "report/report.html").write_bytes(b"<html>new")
        at_site._fetched(connection, profiled, "@last", laptop / "mine")
        assert (laptop / "mine/report.html").read_bytes() == b"<html>new"


def test_what_is_printed_there_is_printed_here_and_nothing_is_fetched(
    lab: SshSite, there: Path, laptop: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    unpack(there / "home")
    assert main(["report", WHOLE, "--methods", "--site", "lab"]) == 0
    printed = capfd.readouterr().out
    assert "exact_match" in printed
    assert main(["report", WHOLE, "--methods", "--json", "--site", "lab"]) == 0
    assert json.loads(capfd.readouterr().out)["sections"]
    assert main(["report", WHOLE, "--format", "markdown", "--to", "-", "--site", "lab"]) == 0
    assert capfd.readouterr().out.startswith("#")
    assert main(["report", WHOLE, "--methods", "--to", "here", "--site", "lab"]) == 2
    assert not (laptop / "hpcbench/remote").exists()
    assert not (laptop / "-").exists()
    assert not (laptop / "here").exists()


def test_a_fetch_through_a_wire_that_is_cut_comes_to_its_end(
    laptop: Path, there: Path, sshd: Sshd, cutter: Cutter
) -> None:
    report = bytes(range(256)) * 4000
    experiment(there, report)
    cutter.to, cutter.cut_after = sshd.port, 400_000
    known = sshd.folder / "known-cut"
    known.write_text(sshd.known_as(cutter.port))
    ssh = site(sshd, there, port=cutter.port, known_hosts=str(known))
    with LoginNode(ssh) as connection:
        place = at_site._fetched(connection, Site(name="lab", ssh=ssh), "@last", None)
    assert (place / "report.html").read_bytes() == report
    assert cutter.cuts >= 2


def heal_after(cutter: Cutter, cuts: int) -> None:
    while cutter.cuts < cuts:
        time.sleep(0.02)
    cutter.cut_after = None


def test_a_submission_goes_on_without_its_connection_and_runs_once(
    laptop: Path, there: Path, sshd: Sshd, cutter: Cutter, capfd: pytest.CaptureFixture[str]
) -> None:
    # Takes the place of hpcbench's `submit`: says a line now and then, and counts its starts.
    (there / "sitecustomize.py").write_text(
        "import os, pathlib, sys, time\n"
        "if sys.orig_argv[-1] == 'slow':\n"
        f"    starts = pathlib.Path({str(there)!r}, 'starts')\n"
        "    starts.write_text(starts.read_text() + 'x' if starts.exists() else 'x')\n"
        "    for number in range(40):\n"
        "        os.write(2, f'line {number} {2000 * chr(120)}\\n'.encode())\n"
        "        time.sleep(0.1)\n"
        '    os.write(1, b\'{"id": "made"}\')\n'
        "    os._exit(0)\n"
    )
    command = (there / "hpcbench").read_text()
    (there / "hpcbench").write_text(command.replace("export ", f"export PYTHONPATH={there} "))
    cutter.to, cutter.cut_after = sshd.port, 30_000
    known = sshd.folder / "known-cut"
    known.write_text(sshd.known_as(cutter.port))
    ssh = site(sshd, there, port=cutter.port, known_hosts=str(known))
    threading.Thread(target=heal_after, args=(cutter, 2), daemon=True).start()
    with LoginNode(ssh) as connection:
        code, out = at_site._submission(connection, ["slow"], "prod", {})
    assert (code, json.loads(out)) == (0, {"id": "made"})
    assert (there / "starts").read_text() == "x"
    err = capfd.readouterr().err
    assert re.findall(r"line (\d+)", err) == [str(number) for number in range(40)]
    assert cutter.cuts >= 2


def test_with_a_terminal_here_there_is_one_there_of_the_same_size(
    laptop: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "91")
    monkeypatch.setenv("LINES", "33")
    with LoginNode(site(sshd)) as connection:
        command = ["sh", "-c", "test -t 1; echo $?; sleep 0.5; stty size"]
        with connection.start(command, terminal=True) as running:
            monkeypatch.setenv("COLUMNS", "77")
            running.resize()
            assert b"".join(iter(running.read, b"")) == b"0\r\n33 77\r\n"
            assert running.code() == 0
        command = ["sh", "-c", "echo up; exec sleep 600"]
        with connection.start(command, terminal=True) as running:
            assert running.readline() == b"up\r\n"
            running.write(b"\x03")
            assert running.code() == 255
        assert output(connection, "sh", "-c", "test -t 1; echo $?") == (b"1\n", 0)


def test_following_goes_on_after_a_cut_without_saying_anything_twice(
    laptop: Path, there: Path, sshd: Sshd, cutter: Cutter, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (there / "hpcbench").write_text(
        "#!/bin/sh\ni=0\nwhile [ $i -lt 60 ]; do\n"
        f"  echo event $i {300 * 'x'}; i=$((i+1)); sleep 0.03\ndone\nexit 1\n"
    )
    cutter.to, cutter.cut_after = sshd.port, 12_000
    known = sshd.folder / "known-cut"
    known.write_text(sshd.known_as(cutter.port))
    profile(laptop, site(sshd, there, port=cutter.port, known_hosts=str(known)))
    threading.Thread(target=heal_after, args=(cutter, 2), daemon=True).start()
    assert main(["events", "--follow", "--site", "lab"]) == 1
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert [line.split()[1] for line in lines] == [str(number) for number in range(60)]
    assert cutter.cuts >= 2


def test_a_second_factor_is_asked_for_once_and_only_on_a_terminal(laptop: Path, sshd: Sshd) -> None:
    known = laptop / "known"
    with TwoFactor(sshd.folder / "host", "123456") as server:
        known.write_text(sshd.known_as(server.port))
        given = site(sshd, port=server.port, known_hosts=str(known))
        with (
            LoginNode(given, terminal=False) as connection,
            pytest.raises(
                EnvironmentFault, match="run it in a terminal: the host asks for a second factor"
            ),
        ):
            connection.start(["true"])
        assert server.asked == 0
        shown = on_a_terminal(given, "Code:", "123456")
        assert "Second factor" in shown
        assert "123456" not in shown
        assert shown.endswith("in0 in0 ")
        assert server.asked == 1
        assert "refuses the login" in on_a_terminal(given, "Code:", *3 * ["wrong"])
