"""Clients of the services, and the store itself, as inherited objects."""

from __future__ import annotations

import asyncio
import os
import socket

import numpy
import redis
import redis.asyncio

from support.forks.subject import Subject
from verbena import far, kv, sync
from verbena.integrations.files import FileSystem
from verbena.kv.server.server import Server


class StoreClient(Subject):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.client = client = kv.Client(address)
        client.set("user:bob", "bob")
        client.set("user:alice", "alice")
        self.refused = {
            "get": lambda: client.get("user:alice"),
            "get_into": lambda: client.get_into("user:alice", bytearray(16)),
            "mget": lambda: client.mget(["user:alice", "user:bob"]),
            "set": lambda: client.set("user:bob", "child"),
            "set, with options": lambda: client.set("user:bob", "child", ex=5),
            "execute": lambda: client.execute("PING"),
            "run": lambda: client.run([("PING",)]),
        }

        def own() -> None:
            with kv.Client(address) as another:
                assert another.get("user:alice") == b"alice"
                assert another.execute("INCRBY", "children", 1) >= 1

        self.allowed = {"a client of its own": own}

    def check(self, number: int) -> None:
        self.client.set("number", str(number))
        assert self.client.get("number") == b"%d" % number
        assert self.client.get("user:bob") == b"bob"
        assert self.client.execute("GET", "user:bob") == b"bob"

    def close(self) -> None:
        self.client.close()


async def open_client(address: str) -> kv.AsyncClient:
    return await kv.AsyncClient(address)


class AsyncStoreClient(Subject):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.client = client = self.loop.run_until_complete(open_client(address))
        self.loop.run_until_complete(client.set("user:carol", "carol"))
        self.refused = {
            "get": lambda: asyncio.run(client.get("user:carol")),
            "set": lambda: asyncio.run(client.set("user:carol", "child")),
            "run": lambda: asyncio.run(client.run([("PING",)])),
        }

    def check(self, number: int) -> None:
        assert self.loop.run_until_complete(self.client.get("user:carol")) == b"carol"
        assert self.loop.run_until_complete(self.client.execute("ECHO", str(number))) == b"%d" % number

    def close(self) -> None:
        if self.client._inherited:
            asyncio.run(self.client.close())
        else:
            self.loop.run_until_complete(self.client.close())
            self.loop.close()


class RedisPool(Subject):
    """redis-py makes new connections after a fork."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.client = client = redis.Redis(connection_pool=kv.redis_pool(address))
        client.set("user:dave", "dave")

        def own() -> None:
            client.set("of the child", "child")
            assert client.get("of the child") == b"child"
            with client.pipeline() as pipeline:
                assert pipeline.get("user:dave").incr("children").execute()[0] == b"dave"

        self.allowed = {"the pool itself": own}

    def check(self, number: int) -> None:
        assert self.client.get("user:dave") == b"dave"
        assert self.client.echo(str(number)) == b"%d" % number

    def close(self) -> None:
        self.client.connection_pool.disconnect()


class AsyncRedisPool(Subject):
    """The pool's connections are replaced in the child, at their first use."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.client = redis.asyncio.Redis(connection_pool=kv.async_redis_pool(address))
        self.loop.run_until_complete(self.client.set("user:erin", "erin"))

        async def own() -> None:
            await self.client.set("of the child", "child")
            assert await self.client.get("of the child") == b"child"
            await self.client.connection_pool.disconnect()

        self.allowed = {"the pool itself": lambda: asyncio.run(own())}

    def check(self, number: int) -> None:
        assert self.loop.run_until_complete(self.client.get("user:erin")) == b"erin"
        assert self.loop.run_until_complete(self.client.echo(str(number))) == b"%d" % number

    def close(self) -> None:
        if not self.loop.is_closed() and os.getpid() == self.process:
            self.loop.run_until_complete(self.client.connection_pool.disconnect())
            self.loop.close()


class Store(Subject):
    """The server itself, with a client of its port."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.server = server = Server()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            server.engine.listen(listening.fileno())
            self.port = listening.getsockname()[1]
        server.start()
        self.client = redis.Redis(port=self.port)
        self.refused = {
            "start": server.start,
            "follow": server.follow,
            "base_copy": server.base_copy,
            "engine": lambda: server.engine.client_ids,
        }

    def check(self, number: int) -> None:
        self.client.set("number", number)
        assert self.client.get("number") == b"%d" % number
        self.client.rpush("list", number)

    def close(self) -> None:
        self.server.close()


class FarArray(Subject):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.session = sync.connect(address)
        self.array = array = far.zeros(self.session, (100_000,), "int64")
        array[:] = numpy.arange(100_000)
        array.prefetch()
        self.refused = {
            "row": lambda: array[5],
            "rows": lambda: array[numpy.arange(0, 90_000, 7)],
            "assignment": lambda: array.__setitem__(5, 1),
            "prefetch": array.prefetch,
            "flush": array.flush,
            "invalidate": array.invalidate,
            "free": lambda: far.free(array),
            "stat": lambda: far.stat(self.session),
        }

        def own() -> None:
            with sync.connect(address) as session, far.zeros(session, (1000,), "int64") as mine:
                mine[:] = numpy.arange(1000)
                assert mine[999] == 999

        self.allowed = {"an array of its own": own}

    def check(self, number: int) -> None:
        assert self.array[number] == number
        self.array.invalidate()
        assert (self.array[numpy.arange(0, 90_000, 7)] == numpy.arange(0, 90_000, 7)).all()

    def close(self) -> None:
        self.array.close()
        self.session.close()


class Files(Subject):
    """The file system opens a session of its own in the child."""

    def __init__(self, address: str) -> None:
        super().__init__()
        host, _, port = address.rpartition(":")
        self.files = files = FileSystem(host, int(port), skip_instance_cache=True)
        files.pipe_file("parent", b"of the parent")

        def own() -> None:
            files.pipe_file("child", b"of the child")
            assert files.cat_file("child") == b"of the child"

        self.allowed = {"the file system itself": own}

    def check(self, number: int) -> None:
        assert self.files.cat_file("parent") == b"of the parent"
        self.files.pipe_file("number", b"%d" % number)
        assert self.files.cat_file("number") == b"%d" % number

    def close(self) -> None:
        self.files.close()
