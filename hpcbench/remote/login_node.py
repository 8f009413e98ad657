"""The login node of a cluster, from a laptop: its hpcbench, over SSH and across dropped connections."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from hpcbench.schema.site import SshSite
from hpcbench.ssh.connection import Connection
from hpcbench.ssh.login import Host, Unreachable
from hpcbench.ssh.remote_command import Dropped, Running

STEADY_SECONDS = 10.0
"""A connection of at least this duration was good: a break after it is counted as a new one."""

PATIENCE_SECONDS = 1800.0
"""How long a dropped connection is retried."""

INSTALL = "install hpcbench-vlm on the host, and set `ssh.hpcbench` in the site profile to its path"

ResultT = TypeVar("ResultT")


class LoginNode(Connection):
    """A connection to the login node that a site profile names."""

    def __init__(self, site: SshSite, *, terminal: bool | None = None) -> None:
        """
        Args:
            site: the site profile's SSH part.
            terminal: whether `ssh` may ask questions; none: whether this process has a terminal.
        """
        first = Host.read(site.host)
        host = replace(
            first,
            user=site.user or first.user,
            port=site.port or first.port,
            jump=site.jump,
            identity=site.identity,
            known_hosts=site.known_hosts,
        )
        super().__init__(host, terminal=terminal)
        self.site = site

    def hpcbench(self, *words: str, terminal: bool = False) -> Running:
        """Start the cluster's own hpcbench; raises as `start`."""
        return self.start([self.site.hpcbench, *words], terminal=terminal, remedy=INSTALL)

    def persist(
        self, work: Callable[[], ResultT], say: Callable[[str], None], patience: float | None = None
    ) -> ResultT:
        """Do resumable work across dropped connections: after each break, the work is called again.

        Args:
            work: the work, which continues where it stopped.
            say: receives messages about breaks.
            patience: seconds of retries after each break.

        Raises:
            HpcbenchError: any error of `work` but `Dropped`; or the connection stays broken.
        """
        broke, pause = 0.0, 0.0
        while True:
            started = time.monotonic()
            try:
                return work()
            except (Dropped, Unreachable) as error:
                self.close()
                if isinstance(error, Unreachable) and not broke:
                    raise  # it never worked
                now = time.monotonic()
                if not broke or now - started > STEADY_SECONDS:
                    broke, pause = now, 0.5
                if now - broke > (PATIENCE_SECONDS if patience is None else patience):
                    raise
                say(f"{error.message}; trying again")
                time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, no secret
                pause = min(30.0, 2 * pause)
