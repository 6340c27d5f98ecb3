"""Programs that close nothing end soon after their last line, and without a word."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from support import services
from support.programs import run_program

import verbena

SESSIONS = {
    "a blocking session": """
        import sys, verbena
        session = verbena.sync.connect(sys.argv[1])
        assert session.call("echo", b"hi") == b"hi"
        print("last line", flush=True)
        """,
    "a session of a loop that has ended": """
        import asyncio, sys, verbena

        async def main():
            session = await verbena.connect(sys.argv[1])
            assert await session.call("echo", b"hi") == b"hi"

        asyncio.run(main())
        print("last line", flush=True)
        """,
    "a listener of a loop that has ended, with a session": """
        import asyncio, verbena

        async def main():
            listener = await verbena.listen("127.0.0.1:0", handlers={"echo": lambda request: request.payload})
            session = await verbena.connect(listener.address)
            assert await session.call("echo", b"hi") == b"hi"

        asyncio.run(main())
        print("last line", flush=True)
        """,
    "a blocking listener, with sessions": """
        import verbena
        listener = verbena.sync.listen("127.0.0.1:0", handlers={"echo": lambda request: request.payload})
        sessions = [verbena.sync.connect(listener.address) for _ in range(3)]
        assert all(session.call("echo", b"hi") == b"hi" for session in sessions)
        print("last line", flush=True)
        """,
    "a node that nothing uses": """
        import verbena
        node = verbena.Node()
        region = node.allocate(1 << 20)
        print("last line", flush=True)
        """,
    "a pool": """
        import asyncio, sys, verbena

        async def main():
            pool = verbena.Pool()
            async with pool.session(sys.argv[1]) as session:
                assert await session.call("echo", b"hi") == b"hi"

        asyncio.run(main())
        print("last line", flush=True)
        """,
    "after sys.exit() in the middle of a with block": """
        import sys, verbena
        with verbena.sync.connect(sys.argv[1]) as session:
            print("last line", flush=True)
            sys.exit()
        """,
    "a session whose name is resolved": """
        import sys, verbena
        session = verbena.sync.connect(sys.argv[1].replace("127.0.0.1", "localhost"))
        print("last line", flush=True)
        """,
}

STORES = {
    "a client": """
        import sys
        from verbena import kv
        client = kv.Client(sys.argv[1])
        client.set("a", "1")
        assert client.get("a") == b"1"
        print("last line", flush=True)
        """,
    "a client in a daemon thread": """
        import sys, threading
        from verbena import kv
        client, called = kv.Client(sys.argv[1]), threading.Event()

        def work():
            while True:
                client.set("a", "1")
                called.set()

        threading.Thread(target=work, daemon=True).start()
        called.wait()
        print("last line", flush=True)
        """,
    "a subscriber of redis-py in a daemon thread": """
        import redis, sys
        from verbena import kv
        client = redis.Redis(connection_pool=kv.redis_pool(sys.argv[1]))
        subscriber = client.pubsub()
        subscriber.subscribe(news=print)
        subscriber.run_in_thread(sleep_time=1, daemon=True)
        print("last line", flush=True)
        """,
    "an asyncio client": """
        import asyncio, sys
        from verbena import kv

        async def main():
            client = await kv.AsyncClient(sys.argv[1])
            assert await client.set("a", "1")

        asyncio.run(main())
        print("last line", flush=True)
        """,
    "redis-py": """
        import redis, sys
        from verbena import kv
        client = redis.Redis(connection_pool=kv.redis_pool(sys.argv[1]))
        assert client.set("a", "1")
        print("last line", flush=True)
        """,
    "redis-py after close()": """
        import redis, sys
        from verbena import kv
        with redis.Redis(connection_pool=kv.redis_pool(sys.argv[1])) as client:
            assert client.set("a", "1")
        print("last line", flush=True)
        """,
    "valkey-py": """
        import valkey, sys
        from verbena import kv
        client = valkey.Valkey(connection_pool=kv.valkey_pool(sys.argv[1]))
        assert client.set("a", "1")
        print("last line", flush=True)
        """,
    "redis-py's asyncio form": """
        import asyncio, redis.asyncio, sys
        from verbena import kv

        async def main():
            client = redis.asyncio.Redis(connection_pool=kv.async_redis_pool(sys.argv[1]))
            assert await client.set("a", "1")

        asyncio.run(main())
        print("last line", flush=True)
        """,
}

SERVICES = {
    "memory-node": """
        import sys, numpy, verbena
        from verbena import far
        array = far.zeros(verbena.sync.connect(sys.argv[1]), (1 << 18,), "int64")
        array[:] = numpy.arange(1 << 18)
        assert array[99_999] == 99_999
        print("last line", flush=True)
        """,
    "file-node": """
        import sys, fsspec
        host, _, port = sys.argv[1].partition(":")
        files = fsspec.filesystem("verbena", host=host, port=int(port))
        files.pipe_file("a", b"content")
        opened = files.open("a")
        assert opened.read() == b"content"
        print("last line", flush=True)
        """,
}

ALONE = {
    "queue pairs": """
        from verbena import verbs
        context = verbs.open_device("shm")
        pd = context.alloc_pd()
        qp = pd.create_qp(context.create_cq(16))
        region = pd.register(bytearray(4096))
        print("last line", flush=True)
        """,
    "a listener of a wire": """
        from verbena import verbs
        listener = verbs.open_device("iwarp").listen("127.0.0.1:0")
        print("last line", flush=True)
        """,
    "a capture": """
        import tempfile, verbena
        node = verbena.Node()
        capture = node.capture(tempfile.mktemp())
        print("last line", flush=True)
        """,
}


@pytest.mark.parametrize("program", SESSIONS.values(), ids=SESSIONS)
def test_a_program_with_open_sessions_ends(listener: verbena.sync.Listener, program: str) -> None:
    """Its peer sees the end of the sessions at once; it need not wait for resume_timeout_s, 30 seconds."""
    run_program(program, listener.address)
    deadline = time.monotonic() + 5
    while listener.sessions:
        assert time.monotonic() < deadline, listener.sessions
        time.sleep(0.005)


@pytest.mark.parametrize("program", STORES.values(), ids=STORES)
def test_a_program_with_open_clients_of_a_store_ends(store: str, program: str) -> None:
    if "redis" in program:
        pytest.importorskip("redis")
    if "valkey" in program:
        pytest.importorskip("valkey")
    run_program(program, store)


@pytest.mark.parametrize("name", SERVICES)
def test_a_program_with_open_remote_memory_or_files_ends(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "service"
    folder.mkdir()
    with services.running(services.SERVICES[name], folder) as (_, banner):
        address = re.search(r"127\.0\.0\.1:\d+", banner)
        assert address is not None, banner
        run_program(SERVICES[name], address[0])


@pytest.mark.parametrize("program", ALONE.values(), ids=ALONE)
def test_a_program_with_open_verbs_objects_ends(program: str) -> None:
    run_program(program)
