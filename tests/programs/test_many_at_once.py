"""Programs that open and close many sessions at once, or one after the other."""

from __future__ import annotations

from support.programs import run_program

TASKS = """
    import asyncio, sys, verbena

    async def use():
        session = await verbena.connect(sys.argv[1])
        for _ in range(5):
            assert await session.call("echo", b"hi") == b"hi"
        await session.close()

    async def main():
        await asyncio.gather(*(use() for _ in range(64)))

    asyncio.run(main())
    print("last line", flush=True)
    """

THREADS = """
    import sys, threading, verbena
    used = threading.Barrier(64)

    def use():
        with verbena.sync.connect(sys.argv[1]) as session:
            for _ in range(5):
                assert session.call("echo", b"hi") == b"hi"
            used.wait()

    threads = [threading.Thread(target=use) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("last line", flush=True)
    """

# The node of a listener is closed with the 300 sessions of this program: each end closes its own.
LISTENER = """
    import asyncio, verbena

    async def main():
        async with verbena.listen("127.0.0.1:0") as listener:
            sessions = await asyncio.gather(*(verbena.connect(listener.address) for _ in range(300)))
            assert len(listener.sessions) == 300
        assert listener.sessions == []
        for session in sessions:
            await session.close()

    asyncio.run(main())
    print("last line", flush=True)
    """

CLIENTS = """
    import sys, threading
    from verbena import kv
    used = threading.Barrier(16)

    def use(number):
        with kv.Client(sys.argv[1]) as client:
            client.set(f"key {number}", str(number))
            assert client.get(f"key {number}") == str(number).encode()
            used.wait()

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("last line", flush=True)
    """

ASYNC_CLIENTS = """
    import asyncio, sys
    from verbena import kv

    async def use(number):
        client = await kv.AsyncClient(sys.argv[1])
        assert await client.set(f"key {number}", str(number))
        await client.close()

    async def main():
        await asyncio.gather(*(use(number) for number in range(64)))

    asyncio.run(main())
    print("last line", flush=True)
    """

CONNECTIONS = """
    import redis, sys, threading
    from verbena import kv
    pool = kv.redis_pool(sys.argv[1])
    used = threading.Barrier(16)

    def use(number):
        client = redis.Redis(connection_pool=pool)
        assert client.set(f"key {number}", number)
        used.wait()
        pool.disconnect()

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("last line", flush=True)
    """

UNCLOSED = """
    import asyncio, sys, verbena

    async def main():
        sessions = await asyncio.gather(*(verbena.connect(sys.argv[1]) for _ in range(600)))
        assert len({session.node for session in sessions}) == 1

    asyncio.run(main())
    print("last line", flush=True)
    """

ONE_AFTER_THE_OTHER = """
    import gc, os, sys, verbena

    def count():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def use(times):
        for _ in range(times):
            with verbena.sync.connect(sys.argv[1]) as session:
                assert session.call("echo", b"hi") == b"hi"
        return count()

    print(*use(20))
    print(*use(200))
    print("last line", flush=True)
    """


def test_64_sessions_of_tasks_open_and_close_at_once(peer: str) -> None:
    run_program(TASKS, peer)


def test_64_sessions_of_threads_open_and_close_at_once(peer: str) -> None:
    run_program(THREADS, peer)


def test_a_listener_closes_300_sessions_at_once() -> None:
    run_program(LISTENER)


def test_16_clients_of_a_store_close_at_once(store: str) -> None:
    run_program(CLIENTS, store)


def test_64_asyncio_clients_of_a_store_close_at_once(store: str) -> None:
    run_program(ASYNC_CLIENTS, store)


def test_threads_may_disconnect_the_pool_of_redis_py_at_once(store: str) -> None:
    run_program(CONNECTIONS, store)


def test_600_sessions_opened_at_once_do_not_delay_the_end(peer: str) -> None:
    run_program(UNCLOSED, peer)


def test_200_sessions_one_after_the_other_leave_no_descriptors_or_threads(peer: str) -> None:
    first, later = (list(map(int, line.split())) for line in run_program(ONE_AFTER_THE_OTHER, peer).output)
    assert later[0] <= first[0] + 4
    assert later[1] <= first[1] + 4
