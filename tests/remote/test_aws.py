"""Requests that only Amazon's own ways need: roles through STS, buckets in the host's name.

S3 is rclone's server, which checks every signature. STS is a fake, for Amazon's cannot be reached
from here: it answers AssumeRole in the form of the published API.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from hpcbench.data.sync import SmartSync
from hpcbench.errors import UserError
from tests.remote.conftest import KEY, SECRET, Server, free_port, running, settle
from tests.remote.test_hostile import answering, page
from tests.remote.test_sync import BRING

ASSUMED = f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>{KEY}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>
<SessionToken>the-token</SessionToken><Expiration>EXPIRES</Expiration></Credentials>
<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/reader/x</Arn><AssumedRoleId>A:x</AssumedRoleId>
</AssumedRoleUser></AssumeRoleResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</AssumeRoleResponse>"""


def test_a_profile_that_assumes_a_role_reads_with_the_roles_credentials(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (s3.folder / "role").mkdir(exist_ok=True)
    (s3.folder / "role/a.txt").write_text("for the role")
    settle()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    Path(os.environ["AWS_CONFIG_FILE"]).write_text(
        "[profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = base-secret\n"
        "[profile reader]\nrole_arn = arn:aws:iam::1:role/reader\nsource_profile = base\n"
    )
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    asked: list[str] = []

    def answer(path: str, body: str) -> bytes:
        asked.append(body)
        return page(ASSUMED.replace("EXPIRES", expires).encode())

    with answering(answer) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{sts}")
        with pytest.raises(UserError, match="InvalidAccessKeyId"):
            SmartSync(tmp_path / "a").bring(f"{s3.url}/role", {**s3.options, "profile": "base"})
        assert not asked
        options = {**s3.options, "profile": "reader"}
        assert SmartSync(tmp_path / "b").bring(f"{s3.url}/role", options).count == 1
    reported = parse_qs(asked[0])
    assert (reported["Action"], reported["RoleArn"]) == (
        ["AssumeRole"],
        ["arn:aws:iam::1:role/reader"],
    )


def test_a_bucket_may_stand_in_the_hosts_name(tmp_path: Path) -> None:
    """`path_style: false`, as Amazon has it; the name is known inside a mount namespace alone."""
    (tmp_path / "served/pages").mkdir(parents=True)
    contents = {"d/a.bin": os.urandom(5000), "d/b.bin": os.urandom(40 << 20)}  # whole, and in parts
    for name, data in contents.items():
        (tmp_path / "served/pages" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "served/pages" / name).write_bytes(data)
    (tmp_path / "hosts").write_text("127.0.0.1 localhost s3.test pages.s3.test\n")
    port = free_port()
    rclone = str(Path(sys.executable).with_name("rclone"))
    argv = [rclone, "serve", "s3", "--addr", f"s3.test:{port}", "--auth-key", f"{KEY},{SECRET}"]
    argv += [
        "--force-path-style=false",
        "--config",
        str(tmp_path / "none"),
        str(tmp_path / "served"),
    ]
    known = ["unshare", "-m", "sh", "-c", f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"']
    options = {"endpoint": f"http://s3.test:{port}", "region": "us-east-1", "path_style": False}
    bring = [sys.executable, "-c", BRING, str(tmp_path / "cache")]
    bring += ["s3://pages/d", json.dumps(options), "loose"]
    for _ in running([*known, "sh", *argv], port, tmp_path / "log"):
        done = subprocess.run([*known, "sh", *bring], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    (version,) = (tmp_path / "cache").glob("*/files")
    assert {path.name: path.read_bytes() for path in version.iterdir()} == {
        name.removeprefix("d/"): data for name, data in contents.items()
    }
