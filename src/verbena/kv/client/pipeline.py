"""Pipelines: commands that run in one message when execute() is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from verbena.kv.client.words import nothing, pairs, set_options, was_stored
from verbena.kv.commands.replies import CommandError

if TYPE_CHECKING:
    from typing_extensions import Self

    from verbena.kv.client.async_client import AsyncClient
    from verbena.kv.client.sync_client import Client
    from verbena.kv.client.words import Command, Word


class _Commands:
    """Collects commands. Each method returns the pipeline. A pipeline may be used again after execute();
    leaving its `with` block drops commands that were not run."""

    def __init__(self, *, transaction: bool) -> None:
        self._transaction = transaction
        self._commands: list[Command] = []
        self._meanings: list[Callable[[Any], Any]] = []

    def __len__(self) -> int:
        return len(self._commands)

    def command(self, *words: Word) -> Self:
        """Adds any command; its reply is the result."""
        return self._add(words, _as_it_is)

    def get(self, key: str | bytes) -> Self:
        return self._add(("GET", key), _as_it_is)

    def mget(self, keys: Iterable[str | bytes]) -> Self:
        return self._add(("MGET", *keys), _as_it_is)

    def set(
        self,
        key: str | bytes,
        value: Word,
        *,
        ex: int | None = None,
        px: int | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
    ) -> Self:
        return self._add(("SET", key, value, *set_options(ex, px, nx, xx, keepttl)), was_stored)

    def mset(self, values: Mapping[str | bytes, Word]) -> Self:
        return self._add(("MSET", *pairs(values)), nothing)

    def delete(self, *keys: str | bytes) -> Self:
        return self._add(("DEL", *keys), int)

    def incr(self, key: str | bytes, amount: int = 1) -> Self:
        return self._add(("INCRBY", key, amount), int)

    def _add(self, command: Command, meaning: Callable[[Any], Any]) -> Self:
        self._commands.append(command)
        self._meanings.append(meaning)
        return self

    def _drop(self) -> None:
        self._commands, self._meanings = [], []

    def _take(self) -> tuple[list[Command], list[Callable[[Any], Any]]]:
        commands, meanings = self._commands, self._meanings
        self._drop()
        if self._transaction and commands:
            commands = [("MULTI",), *commands, ("EXEC",)]
        return commands, meanings

    def _results(
        self, replies: list[Any], meanings: list[Callable[[Any], Any]], raise_on_error: bool
    ) -> list[Any]:
        if self._transaction and replies:
            queued, last = replies[1:-1], replies[-1]
            if isinstance(last, CommandError):  # EXEC names no reason; the command that was refused does
                raise next((reply for reply in queued if isinstance(reply, CommandError)), last)
            replies = last
        if raise_on_error:
            for reply in replies:
                if isinstance(reply, CommandError):
                    raise reply
        return [
            reply if isinstance(reply, CommandError) else meaning(reply)
            for reply, meaning in zip(replies, meanings, strict=True)
        ]


class Pipeline(_Commands):
    """Made by Client.pipeline().

    with store.pipeline() as batch:
        batch.set("a", 1).incr("a")
        batch.execute()  # [True, 2]"""

    def __init__(self, client: Client, *, transaction: bool) -> None:
        super().__init__(transaction=transaction)
        self._client = client

    def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        """Runs the commands; returns their results in order. CommandError: the first error reply, after all
        have run; with `raise_on_error` False it is in the list instead."""
        commands, meanings = self._take()
        return self._results(self._client.run(commands), meanings, raise_on_error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()


class AsyncPipeline(_Commands):
    """Made by AsyncClient.pipeline(): as Pipeline, with `async with` and `await`."""

    def __init__(self, client: AsyncClient, *, transaction: bool) -> None:
        super().__init__(transaction=transaction)
        self._client = client

    async def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        commands, meanings = self._take()
        return self._results(await self._client.run(commands), meanings, raise_on_error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._drop()


def _as_it_is(reply: Any) -> Any:
    return reply
