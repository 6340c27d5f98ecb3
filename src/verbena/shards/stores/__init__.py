"""Where the cluster map is kept: it changes by compare-and-swap only, and whoever watches hears of it.
sqlite:///path for nodes of one machine, etcd://host:port for several. Leases tell who is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from verbena.errors import VerbenaError, setup_error
from verbena.shards.cluster_map import ClusterMap


@dataclass(frozen=True)
class Stored:
    """A map as it was stored; the revision grows with every change, and never comes again."""

    revision: int
    map: ClusterMap


class Lease(Protocol):
    """A member's word that it is there, good for `ttl_s` after each renewal."""

    ttl_s: float
    valid_until: float
    """By time.monotonic(), counted from when the last renewal was *asked for*: the store's own end of it
    comes later. Who holds it stops by then, before anybody may take its place."""

    async def renew(self) -> None:
        """TimedOutError or AddressError if the store does not answer; StateError if the lease has ended."""

    async def announce(self, text: str) -> None:
        """Something that everybody can read as long as the lease lasts. Fails as renew() does."""

    async def revoke(self) -> None: ...


class MapStore(Protocol):
    async def load(self) -> Stored:
        """Revision 0 and an empty map, if there is none yet."""

    async def compare_and_swap(
        self,
        revision: int,
        new: ClusterMap,
        *,
        without_lease: str | None = None,
        begin_within_s: float | None = None,
    ) -> Stored:
        """Stores a map in place of the one with that revision. BusyError (map_conflict): somebody was first,
        or the member `without_lease` holds a lease; nothing has changed. `begin_within_s`: if it has not
        begun by then it never does, TimedOutError (map_not_asked). Once it has begun, nobody but the map
        knows what became of a swap that ends with another error."""

    def watch(self, revision: int) -> AsyncIterator[Stored]:
        """Every map newer than that; some in between may be left out, the newest never is."""

    async def lease(self, member: str, ttl_s: float) -> Lease: ...

    async def leaseholders(self) -> set[str]: ...

    async def announcements(self) -> dict[str, str]:
        """What each leaseholder has said; "": nothing."""

    async def close(self) -> None: ...


def conflict(detail: str) -> VerbenaError:
    return setup_error("map_conflict", operation="change the cluster map", detail=detail)


def open_store(url: str, *, create: bool = True) -> MapStore:
    """The store that a URL means. ValueError if it means none. Without `create` AddressError for a file that
    no node has made: who only looks at a map leaves none behind."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest:
        from verbena.shards.stores.sqlite import SqliteStore

        return SqliteStore(rest if not rest.startswith("/") else "/" + rest.lstrip("/"), create=create)
    if scheme == "etcd" and rest:
        from verbena.shards.stores.etcd import EtcdStore

        return EtcdStore(rest)
    raise ValueError(f"{url!r} is neither sqlite:///path nor etcd://host:port")


async def change(
    store: MapStore, function: Callable[[ClusterMap], ClusterMap], *, attempts: int = 64
) -> Stored:
    """Applies a pure change to whatever the map is by then; what `function` raises is raised."""
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
    raise conflict(f"others were first {attempts} times")
