"""What has happened in the registry, told to whoever asked: webhooks, replication, metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from verbena.registry.digests import Digest
from verbena.registry.incoming import IncomingBlob
from verbena.registry.manifests import Manifest


@dataclass(frozen=True)
class Event:
    """One change or pull. `action` is push, pull, mount or delete; `kind` blob, manifest or tag."""

    action: str
    kind: str
    repository: str
    digest: Digest | None = None
    size: int = 0
    media_type: str = ""
    tag: str = ""
    actor: str = ""
    time: float = field(default_factory=time.time)


class Source(Protocol):
    """Where what is missing here may be had: peers, upstream registries. None: nowhere."""

    async def blob(self, repository: str, digest: Digest) -> IncomingBlob | None:
        """Starts to fetch a blob, or joins whoever fetches it. The one given has its `size` set, is fed by
        the source, and is handed to `Registry.adopt()` by it when it is whole; readers may follow it
        meanwhile. It is closed when nobody refers to it any more."""

    async def manifest(self, repository: str, reference: str) -> Manifest | None:
        """Fetches a manifest by tag or digest. The source stores it by `Registry.adopt_manifest()`."""

    def is_stale(self, repository: str, tag: str) -> bool:
        """Whether a tag that is here should be asked for again; if that fails, what is here is served."""


class Listener(Protocol):
    """Told of every event after it is on disk and before the client has its answer."""

    async def __call__(self, event: Event, /) -> None: ...
