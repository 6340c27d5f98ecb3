"""Stores of the cluster map: it changes by compare-and-swap only, and watchers receive each change. A
member's lease shows that it is alive. sqlite:///path for nodes of one machine, etcd://host:port or
etcds://host:port (TLS) for several. May not depend on kv or registry."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from verbena.errors import VerbenaError, setup_error
from verbena.shards.cluster_map import ClusterMap


@dataclass(frozen=True)
class Stored:
    """A map as it was stored. The revision grows with every change and is never reused."""

    revision: int
    map: ClusterMap


@dataclass(frozen=True)
class EtcdLogin:
    """What etcd may ask for. `tls`: the context for etcds:// addresses."""

    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


class Lease(Protocol):
    """A member's claim to be alive, valid for `ttl_s` after each renewal."""

    ttl_s: float
    valid_until: float
    """By time.monotonic(), counted from when the last renewal was *requested*: in the store the lease ends
    later. The holder stops serving by then, before a replica may replace it."""

    async def renew(self) -> None:
        """TimedOutError or AddressError: the store does not answer. StateError: the lease has ended."""

    async def announce(self, text: str) -> None:
        """Publishes a text, readable by all members while the lease lasts. Errors as for renew()."""

    async def revoke(self) -> None: ...


class MapStore(Protocol):
    async def load(self) -> Stored:
        """The newest map; revision 0 and an empty map if there is none yet."""

    async def compare_and_swap(
        self,
        revision: int,
        new: ClusterMap,
        *,
        without_lease: str | None = None,
        begin_within_s: float | None = None,
    ) -> Stored:
        """Replaces the map with that revision. BusyError (map_conflict): another change came first, or the
        member `without_lease` holds a lease; nothing has changed. TimedOutError (map_not_asked): the swap did
        not begin within `begin_within_s`, and never will. After any other error the outcome is unknown: read
        the map."""

    def watch(self, revision: int) -> AsyncIterator[Stored]:
        """Maps newer than that revision. Intermediate ones may be skipped, the newest never."""

    async def lease(self, member: str, ttl_s: float) -> Lease: ...

    async def leaseholders(self) -> set[str]: ...

    async def announcements(self) -> dict[str, str]:
        """The text that each leaseholder has published; "": none."""

    async def close(self) -> None: ...


def conflict(detail: str) -> VerbenaError:
    return setup_error("map_conflict", operation="change the cluster map", detail=detail)


def open_store(url: str, *, create: bool = True, login: EtcdLogin | None = None) -> MapStore:
    """The store of a URL. ValueError: it is not a store's URL. `create` False: a missing file raises
    AddressError instead of being created, for programs that only read the map."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest:
        from verbena.shards.stores.sqlite import SqliteStore

        return SqliteStore(rest if not rest.startswith("/") else "/" + rest.lstrip("/"), create=create)
    if scheme in ("etcd", "etcds") and rest:
        from verbena.shards.stores.etcd import EtcdStore

        login = login or EtcdLogin()
        if scheme == "etcd":
            login = replace(login, tls=None)
        elif login.tls is None:
            login = replace(login, tls=ssl.create_default_context())
        return EtcdStore(rest, login=login)
    raise ValueError(f"{url!r} is neither sqlite:///path nor etcd://host:port nor etcds://host:port")


async def change(
    store: MapStore, function: Callable[[ClusterMap], ClusterMap], *, attempts: int = 64
) -> Stored:
    """Applies a pure change to the newest map, and retries on conflict. Raises what `function` raises."""
    for _ in range(attempts):
        held = await store.load()
        new = function(held.map)
        if new == held.map:
            return held
        try:
            return await store.compare_and_swap(held.revision, new)
        except VerbenaError as error:
            if error.code != "map_conflict":
                raise
    raise conflict(f"other changes came first {attempts} times")
