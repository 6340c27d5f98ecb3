"""The cluster map in etcd, over its JSON gateway: for nodes of several machines. Every change is a
transaction on the key's revision. A member's key exists as long as its lease."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from verbena.errors import VerbenaError, setup_error
from verbena.shards.cluster_map import ClusterMap
from verbena.shards.stores import EtcdLogin, Stored, conflict
from verbena.shards.stores.http import JsonClient

_RETRY_S = 0.2
_REOPEN_S = 5.0  # a silent watch may be a broken connection: it is opened again after this time


def _text(data: bytes | str) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


class EtcdStore:
    """`address`: host:port, or host:port/prefix for one of several clusters."""

    def __init__(self, address: str, *, login: EtcdLogin | None = None, timeout_s: float = 5.0) -> None:
        where, _, prefix = address.partition("/")
        self._http = JsonClient(where, login=login or EtcdLogin(), timeout_s=timeout_s)
        prefix = prefix or "verbena"
        self._key = f"{prefix}/map"
        self._leases = f"{prefix}/leases/"

    async def load(self) -> Stored:
        answer = await self._http.post("/v3/kv/range", {"key": _text(self._key)})
        found = answer.get("kvs") or []
        return _stored(found[0]) if found else Stored(0, ClusterMap())

    async def compare_and_swap(
        self,
        revision: int,
        new: ClusterMap,
        *,
        without_lease: str | None = None,
        begin_within_s: float | None = None,
    ) -> Stored:
        if begin_within_s is not None:
            await self._ready(begin_within_s)
        compare = [
            {"key": _text(self._key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        ]
        if without_lease is not None:
            key = _text(self._leases + without_lease)
            compare.append({"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"})
        put = {"request_put": {"key": _text(self._key), "value": _text(new.encode())}}
        # A repeated request would fail because the first one has changed the revision.
        once = begin_within_s is not None
        answer = await self._http.post("/v3/kv/txn", {"compare": compare, "success": [put]}, once=once)
        if not answer.get("succeeded"):
            raise conflict(f"the map is not at revision {revision}, or {without_lease} holds a lease")
        return Stored(int(answer["header"]["revision"]), new)

    async def _ready(self, within_s: float) -> None:
        """Checks that etcd answers in time before the transaction is sent: a transaction cannot be taken
        back."""
        try:
            request = {"key": _text(self._key), "keys_only": True}
            await self._http.post("/v3/kv/range", request, timeout_s=within_s)
        except VerbenaError as error:
            raise setup_error(
                "map_not_asked",
                operation="change the cluster map",
                peer=self._http.address,
                detail=error.detail,
            ) from error

    async def watch(self, revision: int) -> AsyncIterator[Stored]:
        while True:
            try:
                held = await self.load()  # for changes that a broken watch or a compaction has skipped
                if held.revision > revision:
                    revision = held.revision
                    yield held
                request = {"key": _text(self._key), "start_revision": str(revision + 1)}
                async with contextlib.aclosing(
                    self._http.stream("/v3/watch", {"create_request": request})
                ) as events:
                    while True:
                        event = await asyncio.wait_for(anext(events), _REOPEN_S)
                        for change in event.get("result", {}).get("events", []):
                            if change.get("type", "PUT") == "PUT":
                                revision = int(change["kv"]["mod_revision"])
                                yield _stored(change["kv"])
                        if event.get("result", {}).get("canceled"):
                            break
            except asyncio.TimeoutError:
                continue
            except StopAsyncIteration:
                pass
            except VerbenaError as error:
                if error.code not in ("map_store", "map_store_timeout"):
                    raise
            await asyncio.sleep(_RETRY_S)

    async def lease(self, member: str, ttl_s: float) -> EtcdLease:
        lease = EtcdLease(self, member, ttl_s)
        await lease.take()
        return lease

    async def leaseholders(self) -> set[str]:
        return set(await self.announcements())

    async def announcements(self) -> dict[str, str]:
        end = self._leases[:-1] + chr(ord(self._leases[-1]) + 1)
        request = {"key": _text(self._leases), "range_end": _text(end)}
        answer = await self._http.post("/v3/kv/range", request)
        return {
            base64.b64decode(found["key"]).decode()[len(self._leases) :]: base64.b64decode(
                found.get("value", "")
            ).decode()
            for found in answer.get("kvs") or []
        }

    async def close(self) -> None:
        self._http.close()
        await asyncio.sleep(0)  # the loop closes the sockets


def _stored(found: dict[str, Any]) -> Stored:
    return Stored(int(found["mod_revision"]), ClusterMap.decode(base64.b64decode(found["value"])))


class EtcdLease:
    """etcd counts whole seconds, at least two: the lease ends for its holder earlier than in etcd, never
    later."""

    def __init__(self, store: EtcdStore, member: str, ttl_s: float) -> None:
        self._store, self._member = store, member
        self.ttl_s = ttl_s
        self.valid_until = 0.0
        self.id = 0

    async def take(self) -> None:
        http, requested = self._store._http, time.monotonic()
        answer = await http.post("/v3/lease/grant", {"TTL": str(max(2, -int(-self.ttl_s // 1)))})
        self.id = int(answer["ID"])
        await self.announce("")
        self.valid_until = requested + self.ttl_s

    async def announce(self, text: str) -> None:
        key = _text(self._store._leases + self._member)
        body = {"key": key, "value": _text(text), "lease": str(self.id)}
        await self._store._http.post("/v3/kv/put", body)

    async def renew(self) -> None:
        requested = time.monotonic()
        body = {"ID": str(self.id)}
        answer = await self._store._http.post("/v3/lease/keepalive", body, timeout_s=self.ttl_s / 3)
        if int(answer.get("result", {}).get("TTL", 0)) <= 0:
            raise setup_error("lease_lost", operation="renew the lease", peer=self._store._http.address)
        self.valid_until = requested + self.ttl_s

    async def revoke(self) -> None:
        await self._store._http.post("/v3/lease/revoke", {"ID": str(self.id)})
        self.valid_until = 0.0
