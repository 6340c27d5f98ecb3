"""The cluster map that this node acts on: a copy of the newest one in the store, changed by
compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable

from verbena.shards.cluster_map import ClusterMap
from verbena.shards.stores import MapStore, Stored, change, conflict


class CurrentMap:
    """`on_change` is called with each new map."""

    def __init__(self, store: MapStore) -> None:
        self.store = store
        self.map = ClusterMap()
        self.revision = 0
        self.on_change: Callable[[ClusterMap], None] = lambda map: None

    async def load(self) -> Stored:
        """Reads the store without acting on the result."""
        return await self.store.load()

    async def refresh(self) -> ClusterMap:
        """Reads the store and acts on the result."""
        self._adopt(await self.store.load())
        return self.map

    async def change(self, function: Callable[[ClusterMap], ClusterMap]) -> ClusterMap:
        """Changes the map by compare-and-swap, retrying on conflict, and acts on it."""
        self._adopt(await change(self.store, function))
        return self.map

    async def swap(self, proposed: Stored, *, begin_within_s: float) -> ClusterMap:
        """Writes a prepared map. BusyError: the revision has changed. TimedOutError (map_not_asked): the
        request was not sent within `begin_within_s`."""
        self._adopt(
            await self.store.compare_and_swap(proposed.revision, proposed.map, begin_within_s=begin_within_s)
        )
        return self.map

    async def promote(
        self, member: str, *, without_lease: str | None = None, revision: int | None = None
    ) -> None:
        """Puts a replica in its primary's place. BusyError: another change came first, or the primary holds
        the lease `without_lease`. `revision`: only that map is changed."""
        stored = await self.store.load()
        if revision is not None and stored.revision != revision:
            raise conflict("the map has changed meanwhile: try again")
        new = stored.map.promote(member)
        self._adopt(await self.store.compare_and_swap(stored.revision, new, without_lease=without_lease))

    async def watch(self) -> None:
        """Acts on each change in the store. Runs until cancelled."""
        async for stored in self.store.watch(self.revision):
            self._adopt(stored)

    def _adopt(self, stored: Stored) -> None:
        if stored.revision > self.revision:
            self.revision, self.map = stored.revision, stored.map
            self.on_change(stored.map)
