"""The blocking and the asyncio client of the store, compared with the one list of operations, and run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.kv.store import Store

from verbena.errors import ClosedError
from verbena.kv import AsyncClient, Client, CommandError
from verbena.kv.client.operations import OPERATIONS
from verbena.kv.client.pipeline import AsyncPipeline, Pipeline

FORMS = (Client, AsyncClient)


def members(form: type) -> set[str]:
    """Public methods and properties, and the attributes that __init__ sets."""
    source = inspect.getsource(form.__init__)  # type: ignore[misc]
    attributes = {part.split(" ")[0].split(":")[0] for part in source.split("self.")[1:]}
    return {name for name in set(dir(form)) | attributes if name.isidentifier() and not name.startswith("_")}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_the_same_in_both_forms(operation: str) -> None:
    """Parameters, their kinds and defaults, and the documentation are equal; only `await` differs."""
    blocking, by_asyncio = (inspect.signature(getattr(form, operation)) for form in FORMS)
    assert list(blocking.parameters.values()) == list(by_asyncio.parameters.values())
    for form in FORMS:
        assert getattr(form, operation).__doc__ == OPERATIONS[operation]


def test_the_forms_have_the_same_members() -> None:
    blocking, by_asyncio = map(members, FORMS)
    assert set(OPERATIONS) <= blocking
    assert blocking == by_asyncio
    assert members(Pipeline) == members(AsyncPipeline)
    ours, theirs = (inspect.signature(form).parameters for form in FORMS)
    assert list(ours) == list(theirs)
    assert [one.default for one in ours.values()] == [one.default for one in theirs.values()]


async def awaited(result: Any) -> Any:
    return await result if isinstance(result, Awaitable) else result


@pytest.fixture(params=["blocking shm", "blocking iwarp", "asyncio shm", "asyncio iwarp"])
def form(request: pytest.FixtureRequest) -> tuple[type[Any], str]:
    name, wire = request.param.split()
    return {"blocking": Client, "asyncio": AsyncClient}[name], wire


def run(form: tuple[type[Any], str], store: Store, body: Callable[[Any], Awaitable[None]]) -> None:
    """Runs the body with a client of the form."""
    kind, wire = form

    async def with_client() -> None:
        client = await awaited(kind(store.sessions, wire=wire))
        try:
            await awaited(client.execute("FLUSHALL"))
            await body(client)
        finally:
            await awaited(client.close())

    asyncio.run(with_client())


def test_both_forms_do_the_same(form: tuple[type[Any], str], store: Store) -> None:
    """Every operation, with the results that the blocking form has."""

    async def body(client: Any) -> None:
        assert await awaited(client.set("key", "value")) is True
        assert await awaited(client.get("key")) == b"value"
        assert await awaited(client.get("nothing")) is None
        assert await awaited(client.set("key", "other", nx=True)) is False
        assert await awaited(client.set("new", "other", xx=True)) is False
        assert await awaited(client.set("brief", "1", ex=100)) is True
        assert await awaited(client.set("brief", "2", keepttl=True)) is True
        assert 0 < await awaited(client.execute("TTL", "brief")) <= 100
        assert await awaited(client.mset({"a": 1, b"b": "2"})) is None
        assert await awaited(client.mget(["a", "b", "c"])) == [b"1", b"2", None]
        assert await awaited(client.mget([])) == []
        assert await awaited(client.incr("a")) == 2
        assert await awaited(client.incr("a", 5)) == 7
        buffer = bytearray(10)
        assert await awaited(client.get_into("key", buffer)) == 5
        assert buffer[:5] == b"value"
        assert await awaited(client.get_into("nothing", buffer)) is None
        with pytest.raises(ValueError, match="the buffer"):
            await awaited(client.get_into("key", bytearray(4)))
        assert await awaited(client.delete("a", "b", "c")) == 2
        with pytest.raises(CommandError, match="not an integer"):
            await awaited(client.incr("key"))
        replies = await awaited(client.run([["SET", "n", 1], ["INCR", "key"], ["INCR", "n"]]))
        assert (replies[0], type(replies[1]), replies[2]) == ("OK", CommandError, 2)
        stats = client.stats()
        assert stats.one_sided >= 5
        assert (stats.redirects, stats.retries, stats.wire) == (0, 0, form[1])
        assert stats.reason

    run(form, store, body)


def test_a_pipeline_collects_commands(form: tuple[type[Any], str], store: Store) -> None:
    async def body(client: Any) -> None:
        pipe = client.pipeline()
        pipe.set("a", 1).incr("a").get("a").command("HSET", "h", "f", "v").delete("a", "b").mset({"c": 1})
        assert len(pipe) == 6
        assert await awaited(pipe.execute()) == [True, 2, b"2", 1, 1, None]
        assert await awaited(pipe.execute()) == []
        pipe.incr("h").set("after", 1, nx=True).set("after", 2, nx=True)
        with pytest.raises(CommandError, match="WRONGTYPE"):
            await awaited(pipe.execute())
        assert await awaited(client.get("after")) == b"1"  # the others have run
        results = await awaited(pipe.incr("h").get("after").execute(raise_on_error=False))
        assert isinstance(results[0], CommandError)
        assert results[1] == b"1"

    run(form, store, body)


def test_a_pipeline_may_be_a_transaction(form: tuple[type[Any], str], store: Store) -> None:
    """Its results are those of EXEC; a command that is refused before EXEC is the error."""

    async def body(client: Any) -> None:
        pipe = client.pipeline(transaction=True)
        assert await awaited(pipe.set("a", 1).incr("a").execute()) == [True, 2]
        with pytest.raises(CommandError, match="unknown command"):
            await awaited(pipe.set("a", 9).command("NOSUCH").execute())
        assert await awaited(client.get("a")) == b"2"

    run(form, store, body)


def test_leaving_a_pipeline_drops_what_was_not_run(store: Store) -> None:
    with Client(store.sessions) as client:
        client.execute("FLUSHALL")
        with client.pipeline() as pipe:
            pipe.set("a", 1)
        assert pipe.execute() == []
        assert client.get("a") is None


async def test_an_asyncio_client_is_opened_in_three_ways(store: Store) -> None:
    """By `async with`, by `await`, and by its first command."""
    async with AsyncClient(store.sessions) as client:
        assert await client.set("key", "value")
    with pytest.raises(ClosedError):
        await client.get("key")
    client = await AsyncClient(store.sessions)
    assert await client.get("key") == b"value"
    await client.close()
    async with AsyncClient(store.sessions) as client:
        shared = AsyncClient(client.session)
        assert await asyncio.gather(*(shared.get("key") for _ in range(64))) == [b"value"] * 64
        await shared.close()
        assert await client.get("key") == b"value"


async def test_a_wrong_password_is_an_error_reply_in_both_forms(store: Store) -> None:
    with pytest.raises(CommandError, match="WRONGPASS"):
        Client(store.sessions, user="nobody", password="wrong")
    with pytest.raises(CommandError, match="WRONGPASS"):
        await AsyncClient(store.sessions, user="nobody", password="wrong")


def test_threads_may_share_a_client(store: Store) -> None:
    """64 threads count together; each command gets its own reply."""
    with Client(store.sessions) as client, ThreadPoolExecutor(64) as threads:
        client.delete("count")
        assert sorted(threads.map(lambda _: client.incr("count"), range(640))) == list(range(1, 641))
