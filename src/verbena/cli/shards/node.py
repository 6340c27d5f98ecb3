"""Queries of `verbena shards` to one node of a cluster, over a session that stays open."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from verbena import transport
from verbena.config import Config, read_secret
from verbena.errors import VerbenaError, setup_error
from verbena.kv.commands.replies import CommandError
from verbena.shards.cluster_map import Member

if TYPE_CHECKING:
    from verbena.kv.client.async_client import AsyncClient

_TIMEOUT_S = 10.0


class NodeSession:
    """A persistent session with a node that is queried repeatedly, so that it does not log a new session each
    time."""

    def __init__(self, options: argparse.Namespace, config: Config) -> None:
        self._options, self._config = options, config
        self._session: transport.Session | None = None
        self._client: AsyncClient | None = None

    async def query(self, member: Member, what: str) -> list[dict[str, Any]]:
        """Returns the node's answer to `CLUSTER what`. Raises VerbenaError if it does not respond; the next
        call reconnects. CommandError: the user may not run the command."""
        try:
            return await asyncio.wait_for(self._query(member, what), _TIMEOUT_S)
        except asyncio.TimeoutError:
            await self.close()
            raise setup_error("call_timeout", operation="query a node", peer=member.sessions) from None
        except (VerbenaError, CommandError):
            await self.close()
            raise

    async def _query(self, member: Member, what: str) -> list[dict[str, Any]]:
        from verbena.kv.client.async_client import AsyncClient  # most actions query no node

        if self._client is None:
            self._session = await transport.connect(member.sessions, config=self._config)
            self._client = AsyncClient(self._session, one_sided=False)
            if login := _login(self._options, self._config):
                await self._client.execute("AUTH", *login)
        found: list[dict[str, Any]] = json.loads(await self._client.execute("CLUSTER", what))
        return found

    async def close(self) -> None:
        (client, self._client), (session, self._session) = (self._client, None), (self._session, None)
        with contextlib.suppress(VerbenaError):
            if client is not None:
                await client.close()
        if session is not None:
            await session.close()


def _login(options: argparse.Namespace, config: Config) -> tuple[str, ...]:
    """Returns the arguments of AUTH; none: there is no password."""
    password = read_secret(config, "kv.password").reveal()
    if options.user:
        return options.user, password
    return (password,) if password else ()
