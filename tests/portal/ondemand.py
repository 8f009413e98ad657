"""A site's Apache before the portal, set up as Open OnDemand sets its own up.

Open OnDemand (github.com/OSC/ondemand) is Apache with `mod_ood_proxy`, a script that fills in what the
directives here name. All of the site is one origin with TLS. Requests below `/node/HOST/PORT/` go to that
port of that host with their path as it is, all others elsewhere. `Host` becomes the portal's own; the
browser's own is in `X-Forwarded-Host`, `-For` and `-Proto`; `X-Forwarded-User` names the account that is
signed in at the site. WebSockets pass through. Apache is Debian's.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

from tests.cluster.packages import install_packages
from tests.cluster.system import LabError
from tests.conftest import unavailable
from tests.user import until

APACHE = Path("/usr/sbin/apache2")
MODULES = (
    *("mpm_event", "authz_core", "headers"),
    *("socache_shmcb", "ssl", "proxy", "proxy_http"),
)
CONFIGURATION = """\
ServerRoot {folder}
ServerName localhost
PidFile {folder}/pid
DefaultRuntimeDir {folder}
Mutex file:{folder}
ErrorLog {folder}/error.log
{modules}
{account}
Listen 127.0.0.1:{port}
SSLEngine on
SSLCertificateFile {folder}/cert.pem
SSLCertificateKeyFile {folder}/key.pem
LogFormat "%>s %U%q" asked
CustomLog {folder}/access.log asked
RequestHeader set X-Forwarded-Proto https
RequestHeader set X-Forwarded-User somebody
ProxyPass "/node/{host}/{portal}" "http://127.0.0.1:{portal}/node/{host}/{portal}" upgrade=websocket
"""


class Proxy:
    """The web server; it runs as another account than the portal's, where we may give it one.

    Args:
        folder: its files.
        host: the portal's host, as its path has it.
        portal: the portal's port.
        port: its own.
    """

    def __init__(self, folder: Path, host: str, portal: int, port: int) -> None:
        if not APACHE.exists():
            try:
                install_packages(("apache2-bin",))
            except LabError as error:
                unavailable(f"no Apache: {error}")
        self.origin = f"https://localhost:{port}"
        self._log = folder / "access.log"
        _certify(folder)
        account = f"User #{ACCOUNT}\nGroup #{pwd.getpwuid(ACCOUNT).pw_gid}" if _ROOT else ""
        modules = "\n".join(
            f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in MODULES
        )
        (folder / "apache.conf").write_text(
            CONFIGURATION.format(
                folder=folder, modules=modules, account=account, port=port, host=host, portal=portal
            )
        )
        argv = [APACHE, "-f", folder / "apache.conf", "-D", "FOREGROUND"]
        self._process = subprocess.Popen(argv)
        until((folder / "pid").exists, 60, "Apache")

    def stop(self) -> None:
        """End it, and all connections."""
        self._process.terminate()
        self._process.wait(30)

    def finished(self) -> list[tuple[str, str]]:
        """Status, and path with query, of each request that has ended."""
        lines = self._log.read_text().splitlines()
        return [(status, path) for status, _, path in (line.partition(" ") for line in lines)]


_ROOT = os.geteuid() == 0
ACCOUNT = 65534 if _ROOT else os.geteuid()
"""The proxy's account."""


def _certify(folder: Path) -> None:
    """A certificate that signs for itself."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
