"""S3 and servers with the same protocol: `s3://BUCKET/PREFIX`.

boto3 finds the credentials (environment, profiles, roles through STS, single sign-on) and reads ranges. Most
reads are of whole objects: obstore's Rust client does them, ten thousand small ones in an eighth of boto3's
time (docs/decisions/0011).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from hpcbench.data.storage import PIECE, as_os_error
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.installed import install_hint
from hpcbench.plugins import StoredFile

REFUSED = (
    "401", "403", "AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
    "SignatureDoesNotMatch",
)  # fmt: skip
"""Codes of errors that a retry does not solve."""

FEW = 100
"""Up to this number, empty objects are requested one by one."""


class S3Storage:
    """Objects below a prefix."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 16

    class Options(BaseModel, extra="forbid", frozen=True):
        """How to reach the server; what is left out is taken from where the AWS tools take it."""

        endpoint: str | None = None
        """`https://HOST:PORT` of a server that is not Amazon's."""
        region: str | None = None
        """Region of the bucket."""
        profile: str | None = None
        """Profile of `~/.aws/config`; it may assume a role."""
        anonymous: bool = False
        """Whether to ask without credentials."""
        path_style: bool | None = None
        """Whether the path contains the bucket; none: yes at an `endpoint`, no at Amazon's."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = self.Options.model_validate(dict(options))
        self._stores: dict[str, Any] = {}
        self._single: set[str] = set()  # URLs that are one object
        self._lock = threading.Lock()

    def list(self, url: str) -> Iterator[StoredFile]:
        """Yield every object below the prefix, or the single object of that name.

        Keys that end in `/` mark folders and are left out.
        """
        bucket, prefix = _place(url)
        self._single.discard(url)
        some, empty = False, set[str]()
        with as_os_error(url, _explain):
            for page in self._obstore.list(
                self._store(bucket), prefix=prefix or None, chunk_size=1000
            ):
                for found in page:
                    some = True
                    if found["size"]:
                        yield _stored(found["path"][len(prefix) :], found)
                    elif len(found["path"]) > len(prefix):
                        empty.add(found["path"])
            if empty:
                yield from self._empty(bucket, prefix, sorted(empty))
            if not some and prefix and not url.endswith("/"):
                yield from self._one(url)

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterable[bytes]:
        """Yield bytes of one object, if it is unchanged since the listing."""
        bucket, prefix = _place(url)
        key = prefix.rstrip("/") if url in self._single else prefix + file.path
        if start == 0 and stop == file.size:
            return self._whole(bucket, key, file)
        return self._range(bucket, key, file, start, stop)

    def put(self, source: Path, url: str, path: str) -> None:
        """Upload one file; a large file goes in several parallel parts."""
        bucket, prefix = _place(url)
        with as_os_error(url, _explain):
            self._client.upload_file(str(source), bucket, prefix + path)

    def _empty(self, bucket: str, prefix: str, keys: Sequence[str]) -> Iterable[StoredFile]:
        """Empty objects that are files: obstore drops the `/` at the end of a key, boto3 does not.

        A listing by boto3 takes ten times as long, so a few objects are requested one by one: a folder
        marker's key without its `/` is missing, or is that of a file that is listed anyway.
        """
        if len(keys) <= FEW:
            # A user who may list only this prefix gets a refusal for a missing key.
            with contextlib.suppress(PermissionError), ThreadPoolExecutor(self.parallel) as pool:
                heads = [*pool.map(partial(self._head, bucket), keys)]
                return [
                    _stored(key[len(prefix) :], found)
                    for key, found in zip(keys, heads, strict=True)
                    if found is not None and not found["size"]
                ]
        return self._listed_empty(bucket, prefix)

    def _listed_empty(self, bucket: str, prefix: str) -> Iterator[StoredFile]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for page in pages:
            for found in page.get("Contents", ()):
                if not found["Size"] and not found["Key"].endswith("/"):
                    mark = found["ETag"] or found["LastModified"].isoformat()
                    yield StoredFile(found["Key"][len(prefix) :], 0, mark)

    def _head(self, bucket: str, key: str) -> Mapping[str, Any] | None:
        try:
            with as_os_error(key, _explain):
                found: Mapping[str, Any] = self._obstore.head(self._store(bucket), key)
                return found
        except FileNotFoundError:
            return None

    def _one(self, url: str) -> Iterator[StoredFile]:
        """The object whose key is the whole URL's path, if there is one."""
        bucket, prefix = _place(url)
        key = prefix.rstrip("/")
        if (found := self._head(bucket, key)) is not None:
            self._single.add(url)
            yield _stored(key.rpartition("/")[2], found)

    def _whole(self, bucket: str, key: str, file: StoredFile) -> Iterator[bytes]:
        with as_os_error(key, _explain):
            options: Any = {"if_match": file.mark} if file.mark.startswith('"') else {}
            found = self._obstore.get(self._store(bucket), key, options=options)
            if file.size <= PIECE:
                yield bytes(found.bytes())
            else:
                yield from map(bytes, found.stream(min_chunk_size=PIECE))

    def _range(
        self, bucket: str, key: str, file: StoredFile, start: int, stop: int
    ) -> Iterator[bytes]:
        with as_os_error(key, _explain):
            match = {"IfMatch": file.mark} if file.mark.startswith('"') else {}
            found = self._client.get_object(
                Bucket=bucket, Key=key, Range=f"bytes={start}-{stop - 1}", **match
            )
            yield from found["Body"].iter_chunks(1 << 20)

    @cached_property
    def _session(self) -> Any:
        try:
            import boto3
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise _lacking() from error
        try:
            options = self._options
            return boto3.Session(profile_name=options.profile, region_name=options.region)
        except BotoCoreError as error:
            raise UserError(Problem(f"s3: {error}", remedy="check `aws configure list`")) from error

    @cached_property
    def _client(self) -> Any:
        session = self._session
        from botocore import UNSIGNED
        from botocore.config import Config

        # `auto` would put the bucket into the path for any server other than Amazon's.
        by_name = "virtual" if self._options.path_style is False else "auto"
        style = "path" if self._path_style else by_name
        config = Config(
            s3={"addressing_style": style},
            max_pool_connections=self.parallel,
            retries={"max_attempts": 3, "mode": "standard"},
            # Only checksums that S3 requires: other servers send the object's checksum with its parts.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            connect_timeout=20,
            read_timeout=60,
            **({"signature_version": UNSIGNED} if self._options.anonymous else {}),
        )
        return session.client("s3", endpoint_url=self._options.endpoint, config=config)

    @property
    def _path_style(self) -> bool:
        wanted = self._options.path_style
        return self._options.endpoint is not None if wanted is None else wanted

    def _store(self, bucket: str) -> Any:
        """obstore's store of a bucket, with the endpoint and credentials that boto3 found."""
        with self._lock:
            if bucket in self._stores:
                return self._stores[bucket]
            endpoint = self._client.meta.endpoint_url
            elsewhere = self._options.endpoint is not None or "amazonaws.com" not in endpoint
            known: dict[str, Any] = {"endpoint": endpoint} if elsewhere else {}
            if self._options.anonymous:
                known["skip_signature"] = True
            else:
                self._credentials()  # fails here with a clear message
                known["credential_provider"] = self._credentials
            if elsewhere and not self._path_style:
                scheme, _, host = endpoint.partition("://")
                known["endpoint"] = f"{scheme}://{bucket}.{host}"
            self._stores[bucket] = self._obstore.store.S3Store(
                bucket,
                region=self._client.meta.region_name or "us-east-1",
                virtual_hosted_style_request=not self._path_style,
                client_options={"allow_http": True, "timeout": "300s"},
                retry_config={"max_retries": 2},
                **known,
            )
            return self._stores[bucket]

    @cached_property
    def _obstore(self) -> Any:
        try:
            import obstore
            import obstore.store
        except ImportError as error:
            raise _lacking() from error
        return obstore

    def _credentials(self) -> Any:
        """The current credentials of boto3; obstore calls this again before they expire."""
        found = self._session.get_credentials()
        if found is None:
            raise PermissionError(
                "no credentials for S3 (set `anonymous: true` for a public bucket)"
            )
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(timezone.utc) + timedelta(minutes=10),
        }


def _explain(error: BaseException) -> tuple[type[OSError], str]:
    """Class of the error (final or not) and reason: both clients quote the server's XML or its code."""
    text, name = str(error), type(error).__name__
    reply = getattr(error, "response", None)
    details = reply.get("Error", {}) if isinstance(reply, dict) else {}
    found = re.search(r"<Code>(\w+)</Code>(?:.*?<Message>(.*?)</Message>)?", text, re.DOTALL)
    code = str(details.get("Code", "")) or (found[1] if found else "")
    why = (
        str(details.get("Message", ""))
        or (found[2] or "" if found else "")
        or text.split("Debug source")[0]
    )
    if code in REFUSED or name in (
        "NoCredentialsError",
        "PermissionDeniedError",
        "UnauthenticatedError",
    ):
        return PermissionError, f"{code or 'refused'}: {why}"
    if code in ("404", "NoSuchBucket", "NoSuchKey") or name in (
        "NotFoundError",
        "FileNotFoundError",
    ):
        none = "the bucket does not exist" if code == "NoSuchBucket" else "it does not exist"
        return FileNotFoundError, str(details.get("Message", "")) or (found and found[2]) or none
    if name == "InvalidPathError":
        return PermissionError, f"lists a key that cannot be a file: {why}"
    if code in ("412", "PreconditionFailed") or name == "PreconditionError":
        return OSError, "it changed while it was read: sync again"
    return OSError, f"{code or name}: {why}"


def _stored(path: str, found: Mapping[str, Any]) -> StoredFile:
    return StoredFile(path, found["size"], found["e_tag"] or found["last_modified"].isoformat())


def _place(url: str) -> tuple[str, str]:
    """Bucket and prefix; `?` and `#` are ordinary letters of a key."""
    bucket, _, key = url.partition("://")[2].partition("/")
    prefix = key.strip("/")
    return bucket, f"{prefix}/" if prefix else ""


def _lacking() -> EnvironmentFault:
    return EnvironmentFault("s3:// needs boto3 and obstore", remedy=install_hint("s3"))
