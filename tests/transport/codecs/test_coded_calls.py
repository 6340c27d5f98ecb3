"""Calls of sessions with a codec, in both forms."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import Any

import numpy
import pytest

import verbena
from verbena import errors, sync
from verbena.transport import Request
from verbena.transport.codecs.codec import NAMES


class Json:
    """A codec of a program."""

    name = "json"

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


def twice(request: Request) -> Any:
    assert request.method == "twice"
    return request.payload * 2


async def later(request: Request) -> Any:
    await asyncio.sleep(0)
    return request.payload


def awaitable(request: Request) -> Any:
    return later(request)


def nothing(request: Request) -> None:
    return None


def unencodable(request: Request) -> Any:
    return object


HANDLERS: dict[str, Any] = {
    "twice": twice,
    "later": later,
    "awaitable": awaitable,
    "nothing": nothing,
    "unencodable": unencodable,
}
VALUES = {"numpy": numpy.arange(4), "msgpack": [1, "a"], "pickle5": [1, {2}]}


def equal(one: Any, other: Any) -> bool:
    return bool(numpy.array_equal(one, other)) if isinstance(one, numpy.ndarray) else one == other


@pytest.mark.parametrize("codec", VALUES)
async def test_handlers_take_and_return_values(codec: str) -> None:
    """Plain, async, and plain ones that return an awaitable."""
    value = VALUES[codec]
    async with (
        verbena.listen("127.0.0.1:0", handlers=HANDLERS, codec=codec) as listener,
        verbena.connect(listener.address, codec=codec) as session,
    ):
        assert equal(await session.call("twice", value), value * 2)
        assert equal(await session.call("later", value), value)
        assert equal(await session.call("awaitable", value), value)
        assert await session.call("nothing", value) is None
        assert await session.call("later") is None
        assert equal(await asyncio.to_thread(session.sync.call, "twice", value), value * 2)


@pytest.mark.parametrize("codec", VALUES)
def test_the_blocking_form_does_too(codec: str) -> None:
    value = VALUES[codec]
    handlers = {"twice": twice, "nothing": nothing}
    with (
        sync.listen("127.0.0.1:0", handlers=handlers, codec=codec) as listener,
        sync.connect(listener.address, codec=codec) as session,
    ):
        assert equal(session.call("twice", value), value * 2)
        assert session.call("nothing") is None


async def test_a_program_brings_its_own_codec() -> None:
    async with (
        verbena.listen("127.0.0.1:0", handlers=HANDLERS, codec=Json()) as listener,
        verbena.connect(listener.address, codec=Json()) as session,
    ):
        assert await session.call("twice", [1, None]) == [1, None, 1, None]


@pytest.mark.parametrize("theirs", NAMES)
@pytest.mark.parametrize("ours", NAMES)
async def test_both_ends_name_the_same_codec(ours: str, theirs: str) -> None:
    """Otherwise nothing is decoded, and the error shows the name with the codec of the peer."""
    async with (
        verbena.listen("127.0.0.1:0", handlers={"later": later}, codec=theirs) as listener,
        verbena.connect(listener.address, codec=ours) as session,
    ):
        if ours == theirs:
            assert not await session.call("later")
            return
        shown = "later" if theirs == "bytes" else rf"later \({theirs}\)"
        with pytest.raises(errors.UnsupportedError, match=f"the peer has: {shown}"):
            await session.call("later")


async def test_long_values_travel_as_long_messages() -> None:
    value = numpy.random.default_rng(1).random((1000, 300))
    async with (
        verbena.listen("127.0.0.1:0", handlers=HANDLERS, codec="numpy") as listener,
        verbena.connect(listener.address, codec="numpy") as session,
    ):
        assert numpy.array_equal(await session.call("twice", value), value * 2)


async def test_the_server_calls_back_with_its_codec() -> None:
    async def ask(request: Request) -> Any:
        return await request.session.call("twice", request.payload)

    async with (
        verbena.listen("127.0.0.1:0", handlers={"ask": ask}, codec="msgpack") as listener,
        verbena.connect(listener.address, handlers=HANDLERS, codec="msgpack") as session,
    ):
        assert await session.call("ask", "ab") == "abab"


async def test_what_cannot_be_encoded_is_an_error_where_it_is() -> None:
    """The caller's own TypeError, or the handler's; the session continues."""
    async with (
        verbena.listen("127.0.0.1:0", handlers=HANDLERS, codec="msgpack") as listener,
        verbena.connect(listener.address, codec="msgpack") as session,
    ):
        with pytest.raises(TypeError, match="serialize"):
            await session.call("later", object)
        with pytest.raises(errors.RemoteError, match="serialize"):
            await session.call("unencodable", 1)
        assert await session.call("later", 1) == 1


async def test_a_hostile_payload_is_the_callers_error() -> None:
    """A peer that writes other bytes than the codec's gets an error, and the handler does not run."""
    async with (
        verbena.listen("127.0.0.1:0", handlers=HANDLERS, codec="numpy") as listener,
        verbena.connect(listener.address) as hostile,
        verbena.connect(listener.address, codec="numpy") as session,
    ):
        for payload in (b"x", b"\xff" * 100, b"\x03\x01<f4" + bytes(100), b"\x01\xff" + bytes(5000)):
            with pytest.raises(errors.RemoteError):
                await hostile.call("later (numpy)", payload)
        assert (await session.call("later", 5)).tolist() == 5


async def test_a_wrong_reply_is_the_peers_error() -> None:
    handlers = {"add (numpy)": lambda request: b"not an array"}
    async with (
        verbena.listen("127.0.0.1:0", handlers=handlers) as listener,
        verbena.connect(listener.address, codec="numpy") as session,
    ):
        with pytest.raises(errors.ProtocolError, match="codec numpy"):
            await session.call("add", 1)
        with pytest.raises(errors.ProtocolError, match="codec numpy"):
            await asyncio.to_thread(session.sync.call, "add", 1)


async def test_verbenas_own_methods_and_regions_need_no_codec() -> None:
    async with (
        verbena.listen("127.0.0.1:0", codec="numpy") as listener,
        verbena.connect(listener.address, codec="numpy") as session,
    ):
        assert b'"sessions"' in await session.call("verbena.status")
        assert b'"sessions"' in await asyncio.to_thread(session.sync.call, "verbena.status")
        listener.publish("array", numpy.arange(3))
        assert (await session.pull("array")).tolist() == [0, 1, 2]


async def test_a_pool_has_a_codec_too() -> None:
    async with (
        verbena.listen("127.0.0.1:0", handlers=HANDLERS, codec="msgpack") as listener,
        verbena.Pool(codec="msgpack") as pool,
        pool.session(listener.address) as session,
    ):
        assert await session.call("twice", "ab") == "abab"


async def test_a_cancelled_call_ends_its_handler() -> None:
    """Also a call that has not begun: nothing is left that was never awaited."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with (
        verbena.listen("127.0.0.1:0", handlers={"wait": wait}, codec="msgpack") as listener,
        verbena.connect(listener.address, codec="msgpack") as session,
    ):
        call = asyncio.ensure_future(session.call("wait"))
        await began.wait()
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        await asyncio.wait_for(ended.wait(), 10)


def test_many_threads_call_at_once() -> None:
    results: list[bool] = []
    with (
        sync.listen("127.0.0.1:0", handlers={"twice": twice}, codec="numpy") as listener,
        sync.connect(listener.address, codec="numpy") as session,
    ):

        def use(number: int) -> None:
            array = numpy.full(1000, number)
            results.extend(bool((session.call("twice", array) == 2 * array).all()) for _ in range(20))

        threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 160
