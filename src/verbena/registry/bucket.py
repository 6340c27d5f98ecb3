"""A bucket of an S3-compatible store, through obstore, which moves the bytes in native code without the GIL.
Each upload creates a new object under a unique name, and objects never change; a database row names the
object that holds a blob. So a deletion cannot hit the object of a concurrent upload of the same blob."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import importlib.util
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verbena.config.registry import RegistryS3
from verbena.errors import VerbenaError, setup_error
from verbena.registry.database import Database
from verbena.registry.digests import Digest
from verbena.registry.errors import Refused

if TYPE_CHECKING:
    from obstore.store import ClientConfig

CONCURRENT_PARTS = 4
MAX_PARTS = 10_000
RETRIES = 3


class BucketFailed(Refused):
    """The bucket cannot be used at the moment. Clients get 503 with Retry-After."""

    def __init__(self, operation: str, error: BaseException) -> None:
        self.reason = _first_line(error)
        super().__init__("UNAVAILABLE", f"object store: {operation} failed", headers={"Retry-After": "5"})

    def __str__(self) -> str:
        return f"{self.message}: {self.reason}"


class ObjectMissing(Exception):
    """A row names an object that the bucket does not have."""


@dataclass(frozen=True)
class BucketSettings:
    bucket: str
    endpoint: str = ""
    prefix: str = ""
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = ""
    profile: str = ""
    path_style: bool = True
    ca: str = ""
    timeout_s: float = 30.0
    part_bytes: int = 8 << 20


class Bucket:
    """An S3 bucket; object names are relative to the prefix. The constructor sends no request; `claim()`
    does."""

    def __init__(self, settings: BucketSettings) -> None:
        if importlib.util.find_spec("obstore") is None:
            raise setup_error("s3_missing", operation="open the bucket", detail="obstore")
        self.settings = settings
        self.sent_bytes = 0
        self.received_bytes = 0
        self.failures = 0
        self._store = _open(settings)

    def __str__(self) -> str:
        return f"s3://{self.settings.bucket}/{self.settings.prefix}".rstrip("/")

    def claim(self, owner: str) -> None:
        """Claims the prefix for this registry, with an object named `owner`: two registries under one prefix
        would delete each other's blobs as garbage. Raises UnavailableError if the prefix belongs to another
        registry or the bucket cannot be used."""
        import obstore

        try:
            try:
                found = bytes(obstore.get(self._store, "owner").bytes()).decode("utf-8", "replace")
            except FileNotFoundError:
                obstore.put(self._store, "owner", owner.encode())
                found = bytes(obstore.get(self._store, "owner").bytes()).decode("utf-8", "replace")
        except Exception as error:
            raise self.unavailable_error(_first_line(error)) from error
        if found != owner:
            raise self.unavailable_error("another registry uses this prefix; give each registry its own")

    def unavailable_error(self, reason: str) -> VerbenaError:
        return setup_error("registry_bucket", operation="open the bucket", detail=f"{self}: {reason}")

    async def put(self, path: Path, digest: Digest, size: int) -> str:
        """Uploads a file, in parts if it is large, and returns the object's name. The object becomes visible
        only when it is complete. Raises BucketFailed."""
        import obstore

        name = f"blobs/{digest.algorithm}/{digest.encoded[:2]}/{digest.encoded}/{uuid.uuid4().hex}"
        part = max(self.settings.part_bytes, -(-size // MAX_PARTS))
        with self._failing("upload"):
            await obstore.put_async(
                *(self._store, name, path),
                use_multipart=size > part,
                chunk_size=part,
                max_concurrency=CONCURRENT_PARTS,
            )
        self.sent_bytes += size
        return name

    async def get(self, name: str, start: int, length: int) -> memoryview:
        """Reads `length` bytes of an object from `start` on. Raises BucketFailed, ObjectMissing."""
        import obstore

        with self._failing("download"):
            return self._got(
                await obstore.get_range_async(self._store, name, start=start, length=length), length
            )

    def read(self, name: str, start: int, length: int) -> memoryview:
        """Blocking form of `get()`, for worker threads."""
        import obstore

        with self._failing("download"):
            return self._got(obstore.get_range(self._store, name, start=start, length=length), length)

    def size_of(self, name: str) -> int:
        import obstore

        with self._failing("look-up"):
            return int(obstore.head(self._store, name)["size"])

    def delete(self, names: Sequence[str]) -> None:
        """Deletes objects; one that does not exist is no error. Raises BucketFailed."""
        import obstore

        with self._failing("deletion"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    obstore.delete(self._store, name)

    def quarantine(self, name: str) -> str:
        """Moves a damaged object to `quarantine/`, from which nothing is served; returns its new address.
        Raises BucketFailed, ObjectMissing."""
        import obstore

        kept = "quarantine/" + name.removeprefix("blobs/").replace("/", "-")
        with self._failing("move"):
            obstore.copy(self._store, name, kept)
            obstore.delete(self._store, name)
        return f"{self}/{kept}"

    def objects(self) -> Iterator[tuple[str, float]]:
        """Yields the name and modification time of every object under blobs/, with or without a database row.
        Raises BucketFailed."""
        import obstore

        with self._failing("listing"):
            for page in obstore.list(self._store, "blobs"):
                for entry in page:
                    yield entry["path"], entry["last_modified"].timestamp()

    async def sign(self, name: str, seconds: int) -> str:
        """Returns a presigned URL for GET, valid for `seconds`. Raises BucketFailed."""
        import obstore

        with self._failing("signature"):
            return await obstore.sign_async(self._store, "GET", name, datetime.timedelta(seconds=seconds))

    def _got(self, data: Any, length: int) -> memoryview:
        if len(data) != length:
            raise EOFError(f"{len(data)} bytes instead of {length}")
        self.received_bytes += length
        return memoryview(data)

    @contextlib.contextmanager
    def _failing(self, operation: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error) and operation in ("download", "look-up", "move"):
                raise ObjectMissing from error
            self.failures += 1
            raise BucketFailed(operation, error) from error
        except Exception as error:
            self.failures += 1
            raise BucketFailed(operation, error) from error


def bucket_of(keys: RegistryS3) -> Bucket | None:
    """Returns the configured bucket, or None if none is configured. Raises UnavailableError."""
    if not keys.bucket:
        return None
    return Bucket(
        BucketSettings(
            bucket=keys.bucket,
            endpoint=keys.endpoint.rstrip("/"),
            prefix=keys.prefix.strip("/"),
            region=keys.region,
            access_key=keys.access_key,
            secret_key=keys.secret_key.reveal(),
            profile=keys.profile,
            path_style=keys.path_style,
            ca=keys.ca,
            timeout_s=keys.timeout_s,
            part_bytes=keys.part_size,
        )
    )


def require_bucket(database: Database, bucket: Bucket | None) -> None:
    """Raises UnavailableError if rows refer to objects but no bucket is configured: those blobs would seem
    lost."""
    row = database.row("SELECT count(*) FROM blobs WHERE object IS NOT NULL")
    if bucket is None and row is not None and row[0]:
        detail = f"{row[0]} blobs are in a bucket, and registry.s3.bucket is empty"
        raise setup_error("registry_bucket", operation="open the bucket", detail=detail)


def _open(settings: BucketSettings) -> Any:
    from obstore.store import S3Store

    endpoint = settings.endpoint
    if endpoint and not settings.path_style:
        scheme, _, host = endpoint.partition("://")
        endpoint = f"{scheme}://{settings.bucket}.{host}"
    timeout = datetime.timedelta(seconds=settings.timeout_s)
    client: ClientConfig = {
        "allow_http": endpoint.startswith("http://"),
        "connect_timeout": min(timeout, datetime.timedelta(seconds=5)),
        "timeout": timeout,
    }
    if settings.ca:
        client["root_certificate"] = Path(settings.ca).read_bytes()
    options: dict[str, Any] = {"region": settings.region}
    if endpoint:
        options["endpoint"] = endpoint
    if settings.access_key:
        options |= {"access_key_id": settings.access_key, "secret_access_key": settings.secret_key}
    elif settings.profile:
        options["credential_provider"] = _profile(settings)
    try:
        return S3Store(
            settings.bucket,
            prefix=settings.prefix or None,
            virtual_hosted_style_request=not settings.path_style,
            client_options=client,
            retry_config={"max_retries": RETRIES, "retry_timeout": timeout},
            **options,
        )
    except Exception as error:
        detail = f"s3://{settings.bucket}: {_first_line(error)}"
        raise setup_error("registry_bucket", operation="open the bucket", detail=detail) from error


def _profile(settings: BucketSettings) -> Any:
    if importlib.util.find_spec("boto3") is None:
        raise setup_error("s3_missing", operation="read the profile", detail="boto3")
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = importlib.import_module("boto3").Session(profile_name=settings.profile)
    return Boto3CredentialProvider(session)


def _first_line(error: BaseException) -> str:
    """Shortens an obstore error to its first line and S3's error code."""
    text = str(error) or type(error).__name__
    line = text.partition("\n")[0]
    if request := re.search(r" [A-Z]+ https?://([^/\s]+)\S* in \S+ - ", line):  # drop the long object address
        line = f"{request[1]}: {line[request.end() :]}"
    code = text.partition("<Code>")[2].partition("</Code>")[0]
    return f"{line[:300]}{f' ({code})' if code else ''}"
