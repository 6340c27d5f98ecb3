"""Events of the registry and their listeners (webhooks, replication, metrics), and sources of missing
content."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from verbena.registry.digests import Digest
from verbena.registry.incoming import IncomingBlob
from verbena.registry.manifests import Manifest


@dataclass(frozen=True)
class Event:
    """One change or pull. `action` is push, pull, mount or delete; `kind` is blob, manifest or tag."""

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
    """Where the registry gets content that it does not have: peers or upstream registries."""

    async def blob(self, repository: str, digest: Digest) -> IncomingBlob | None:
        """Starts to fetch a blob, or joins a running fetch; None if no source has it. The result has its
        `size` set; the source writes to it and passes it to `Registry.adopt()` when it is complete. Readers
        may follow it before. It is closed when its last reference is gone."""

    async def manifest(self, repository: str, reference: str) -> Manifest | None:
        """Fetches a manifest by tag or digest, stores it with `Registry.adopt_manifest()` and returns it;
        None if no source has it."""

    def is_stale(self, repository: str, tag: str) -> bool:
        """Whether a stored tag should be fetched again; if that fails, the stored one is served."""


class Listener(Protocol):
    """Called with every event; for changes, after they are on disk and before the client gets its
    response."""

    async def __call__(self, event: Event, /) -> None: ...
