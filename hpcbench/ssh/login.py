"""Login to a host with the `ssh` program, and the meaning of its refusals."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hpcbench.errors import EnvironmentFault, HpcbenchError, Problem, UserError
from hpcbench.subprocesses import printed, run

CONFIG = """\
Host *
BatchMode {batch}
StrictHostKeyChecking yes
ConnectTimeout 20
ServerAliveInterval 15
ServerAliveCountMax 4
ControlMaster no
ClearAllForwardings yes
StreamLocalBindUnlink yes
ForwardAgent no
ForwardX11 no
PermitLocalCommand no
RemoteCommand none
RequestTTY no
LogLevel {level}
Include {settings}
Host *
Include /etc/ssh/ssh_config
"""
"""First settings of all connections and jump hosts: options of a command line do not reach jump hosts."""


class Unreachable(EnvironmentFault):
    """The host cannot be reached."""


class Refused(EnvironmentFault):
    """The host refuses the login, or its key is unknown."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine, and the settings that override `~/.ssh/config` for it."""

    name: str
    """Name or address; an alias of ~/.ssh/config."""
    user: str | None = None
    """User; none: ~/.ssh/config's, else the own name."""
    port: int | None = None
    """Port; none: ~/.ssh/config's, else 22."""
    jump: str | None = None
    """Jump hosts, as `ssh -J` takes them; `none`: no jump host, whatever ~/.ssh/config says."""
    identity: str | None = None
    """File with the only private key to offer; none: the agent's and the usual ones."""
    known_hosts: str | None = None
    """File of host keys besides the files that `ssh` reads."""
    first_contact: Path | None = None
    """File for the host's key, which is accepted at first contact: for a new machine."""
    settings: Path | None = None
    """File that is read in place of ~/.ssh/config."""

    @classmethod
    def read(cls, text: str) -> Host:
        """Parse `[USER@]HOST[:PORT]` or `ssh://…`; an IPv6 address with a port has brackets.

        Raises:
            UserError: the text does not have this form.
        """
        found = re.fullmatch(
            r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:@/\[\]]+))"
            r"(?::(?P<port>\d{1,5}))?/?",
            text.strip(),
        )
        bare = re.fullmatch(r"(?:(?P<user>[^@\s]+)@)?(?P<host>[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)", text)
        if bare and ":" in bare["host"].partition(":")[2]:
            return cls(bare["host"], bare["user"])
        host = (found["v6"] or found["host"]) if found else ""
        port = int(found["port"]) if found and found["port"] else None
        if found is None or host.startswith("-") or (port is not None and not 0 < port < 65536):
            raise UserError(Problem(f"'{text}' is not a host", remedy="write [USER@]HOST[:PORT]"))
        return cls(host, found["user"], port)

    def options(self) -> list[str]:
        """Options of `ssh` with the same settings."""
        argv: list[str] = []
        if self.user:
            argv += ["-l", self.user]
        if self.port:
            argv += ["-p", str(self.port)]
        if self.jump:
            argv += ["-o", f"ProxyJump={self.jump}"]
        if self.identity:
            argv += ["-o", "IdentitiesOnly=yes", "-i", str(Path(self.identity).expanduser())]
        if self.known_hosts:
            # The file is added to the global files, so that the files of the user's configuration count, too.
            more = _quoted(Path(self.known_hosts).expanduser())
            usual = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
            argv += ["-o", f"GlobalKnownHostsFile={usual} {more}"]
        if self.first_contact:
            argv += [
                "-o",
                "StrictHostKeyChecking=accept-new",
                "-o",
                "GlobalKnownHostsFile=/dev/null",
            ]
            argv += ["-o", f"UserKnownHostsFile={_quoted(self.first_contact)}"]
        return argv


@dataclass(frozen=True, slots=True)
class Login:
    """The command line of `ssh` for a host: words before `-- HOST`."""

    host: Host
    argv: tuple[str, ...]
    settings: Mapping[str, Sequence[str]]
    """Output of `ssh -G` for the host: keyword in lower case → values."""

    @classmethod
    def prepare(cls, folder: Path, host: Host, *, ask: bool) -> Login:
        """Write the configuration into a folder, which must exist until the login.

        Args:
            folder: a private folder.
            host: the host.
            ask: whether `ssh` may ask questions, on a terminal or with SSH_ASKPASS.
        """
        config = folder / "config"
        level = "INFO" if ask else "ERROR"
        theirs = _quoted(host.settings) if host.settings else "~/.ssh/config"
        text = CONFIG.format(batch="no" if ask else "yes", level=level, settings=theirs)
        config.write_text(text, encoding="utf-8")
        argv = ["ssh", "-F", str(config), *host.options()]
        settings: dict[str, list[str]] = defaultdict(list)
        for line in (printed([*argv, "-G", "--", host.name], 20) or "").splitlines():
            keyword, _, value = line.partition(" ")
            settings[keyword].append(value)
        argv += fast_ciphers_first(settings)
        return cls(host, tuple(argv), settings)

    def fault(self, output: str) -> HpcbenchError:
        """The error for the output of `ssh` after a failed login."""
        fault = self._fault(output)
        if isinstance(fault, Unreachable) and self.settings.keys() & {"proxyjump", "proxycommand"}:
            # A login that goes to the background hides the messages of jump hosts.
            return self._fault(self._debugged() or output)
        return fault

    def _fault(self, output: str) -> HpcbenchError:
        name, lines = self.host.name, [line for line in output.splitlines() if line.strip()]
        if bad := [line for line in lines if "onfiguration option" in line or ": Bad " in line]:
            return UserError(Problem(bad[0].strip(), remedy="correct ~/.ssh/config"))
        if found := re.search(r"host key for (\S+) (?:was|is marked as) revoked", output):
            return Refused(f"the key of {found[1]} is revoked: do not trust this host")
        if found := re.search(r"key for (\S+) has changed", output):
            key = re.search(r"the (\S+) key sent by the remote host is\s+(\S+?)\.?\s", output)
            return Refused(
                f"the key of {found[1]} has changed: the host was reinstalled, or another machine intercepts "
                f"the connection; the key is now {' '.join(key.groups()) if key else 'another one'}",
                remedy=f"ask its support, then run `ssh-keygen -R '{found[1]}'` and once "
                f"`ssh {_words(found[1])}`",
            )
        if found := re.search(r"No \S+ host key is known for (\S+) and", output):
            keys = re.findall(r"Server host key: (\S+ \S+)", self._debugged())
            host = _words(found[1])
            return Refused(
                f"{found[1]} is not in known_hosts{f'; its key is {keys[-1]}' if keys else ''}",
                remedy=f"compare it with the key that your cluster publishes: run `ssh {host}` once, or "
                f"`ssh-keyscan {host}`",
            )
        denied = r"(?:(\S+@\S+): )?Permission denied \(([^)]*)\)|Too many authentication"
        if found := re.search(denied, output):
            return self._login_refused(found[1], found[2] or "")
        lines = [line for line in lines if not line.startswith("debug")]
        why = lines[-1].strip().removeprefix("ssh: ") if lines else "ssh ended without a message"
        return Unreachable(f"cannot reach {name}: {why}", remedy=f"check that `ssh {name}` works")

    def _debugged(self) -> str:
        """Output of a second try with debug messages: only these contain an unknown host's key."""
        argv = [*self.argv, "-v", "-o", "LogLevel=DEBUG1", "-o", "BatchMode=yes", "--"]
        with contextlib.suppress(OSError):
            return run([*argv, self.host.name, "true"], 30, alone=True).messages  # asks nothing
        return ""

    def _login_refused(self, account: str | None, methods: str) -> Refused:
        batch = self.settings.get("batchmode") == ["yes"]
        name = self.host.name
        user, address = (self.settings.get(key, ["?"])[0] for key in ("user", "hostname"))
        if account is not None and account != f"{user}@{address}":
            remedy = (
                f"`ssh {name}` goes through this host; ssh takes keys from the agent and ~/.ssh"
            )
            return Refused(f"{account}: the host refuses the login", remedy=remedy)
        remedy = (
            f"check that `ssh {name}` works: ssh takes keys from the agent (`ssh-add`) and ~/.ssh"
        )
        if batch and "keyboard-interactive" in methods:
            remedy = "run it in a terminal: the host asks for a second factor"
        elif batch and (locked := [key for key in self._keys() if _has_passphrase(key)]):
            remedy = f"run `ssh-add {locked[0]}`: the key has a passphrase"
        return Refused(f"{user}@{name}: the host refuses the login", remedy=remedy)

    def _keys(self) -> Iterator[Path]:
        for value in self.settings.get("identityfile", ()):
            if (path := Path(value).expanduser()).is_file():
                yield path


def fast_ciphers_first(settings: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Options that put AES-GCM first, where the processor has instructions for it and `ssh` may use it.

    The cipher limits the rate, and this one takes half of the time of `ssh`'s first choice. Only ciphers that
    the configuration allows are used.
    """
    try:
        cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ()
    if not re.search(r"^(flags|Features)\s*:.*\baes\b", cpu, re.MULTILINE):
        return ()
    names = ",".join(settings.get("ciphers", ())).split(",")
    fast = [name for name in names if name.startswith("aes") and "-gcm@" in name]
    return ["-c", ",".join(fast + [name for name in names if name not in fast])] if fast else ()


def _has_passphrase(key: Path) -> bool:
    return printed(["ssh-keygen", "-y", "-P", "", "-f", str(key)], 10) is None


def _words(known_as: str) -> str:
    """A name in the form of known_hosts, `[HOST]:PORT`, as words for `ssh`."""
    found = re.fullmatch(r"\[(.+)\]:(\d+)", known_as)
    return f"-p {found[2]} {found[1]}" if found else known_as


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("%", "%%") + '"'


def spawn(argv: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start `ssh`.

    Raises:
        EnvironmentFault: there is no `ssh`.
    """
    try:
        return subprocess.Popen(argv, **how)
    except FileNotFoundError as error:
        raise EnvironmentFault(
            "this machine has no `ssh` program", remedy="install the OpenSSH client"
        ) from error


# --- a login of its own --------------------------------------------------------------------------------

_ANSWER = "HPCBENCH_SSH_ANSWER"
_ASKPASS = f"#!/bin/sh\nprintf '%s\\n' \"${_ANSWER}\"\n"


@contextlib.contextmanager
def subsystem(
    host: Host, name: str, answer: str | None, errors: IO[bytes]
) -> Iterator[tuple[subprocess.Popen[bytes], Login]]:
    """Start a subsystem of a host over a connection of its own; the login happens inside the context.

    Args:
        host: the host.
        name: the subsystem, `sftp`.
        answer: password of the user or of the key. It goes through the environment, which only we and root
            can read, never as an argument.
        errors: receives the messages of `ssh`.

    Raises:
        EnvironmentFault: there is no `ssh`.
    """
    with tempfile.TemporaryDirectory(prefix="hpcbench-") as made:
        folder, environment = Path(made), dict(os.environ)
        login = Login.prepare(folder, host, ask=answer is not None)
        argv = [*login.argv]
        if answer is not None:
            askpass = folder / "answer"
            askpass.write_text(_ASKPASS, encoding="ascii")
            askpass.chmod(0o700)
            argv += ["-o", "NumberOfPasswordPrompts=1"]
            environment |= {"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
            environment |= {"DISPLAY": ":", _ANSWER: answer}
        process = spawn(
            [*argv, "-T", "-s", "--", host.name, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,  # we handle Ctrl-C; no terminal for questions
        )
        yield process, login
