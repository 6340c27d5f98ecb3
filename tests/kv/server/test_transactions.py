"""MULTI, EXEC and WATCH, with redis-py and with plain RESP."""

from __future__ import annotations

import threading

import redis
from support.kv.kv_store import Store
from support.kv.resp import RespConnection


def test_a_transaction_runs_as_a_whole(client: redis.Redis):
    """Replies come in the order of the commands; native commands are queued like others."""
    with client.pipeline(transaction=True) as pipe:
        pipe.set("a", 1).incr("a").get("a").dbsize()
        assert pipe.execute() == [True, 2, "2", 1]


def test_an_error_while_queueing_spoils_it_and_one_while_running_does_not(store: Store, client: redis.Redis):
    """EXECABORT if a command could not be queued; otherwise the error is one of the replies."""
    with RespConnection(store.port) as wire:
        assert wire("MULTI") == "OK"
        assert wire("SET", "a", "x") == "QUEUED"
        assert str(wire("NOSUCH")).startswith("ERR unknown command")
        assert str(wire("EXEC")).startswith("EXECABORT")
        assert client.exists("a") == 0
        wire("MULTI")
        assert str(wire("GET")).startswith("ERR wrong number of arguments")
        assert str(wire("EXEC")).startswith("EXECABORT")
        wire("MULTI")
        wire("SET", "a", "x")
        wire("INCR", "a")
        wire("SET", "b", "y")
        ok, error, also = wire("EXEC")
        assert (ok, also) == ("OK", "OK")
        assert str(error).startswith("ERR value is not an integer")
        assert wire("GET", "b") == b"y"


def test_transaction_commands_are_refused_out_of_order(store: Store):
    """Nested MULTI, EXEC and DISCARD without MULTI, WATCH inside MULTI."""
    with RespConnection(store.port) as wire:
        assert str(wire("EXEC")) == "ERR EXEC without MULTI"
        assert str(wire("DISCARD")) == "ERR DISCARD without MULTI"
        wire("MULTI")
        assert str(wire("MULTI")) == "ERR MULTI calls can not be nested"
        assert str(wire("WATCH", "a")) == "ERR WATCH inside MULTI is not allowed"
        assert wire("DISCARD") == "OK"
        assert wire("PING") == "PONG"


def test_a_watched_key_that_changed_prevents_exec(store: Store, client: redis.Redis):
    """Whichever client changed it, and by any means: a native command, one in Python, expiry, flush, swap."""

    def changes(*command: object) -> bool:
        client.flushall()
        client.set("w", "1", px=60_000)
        with RespConnection(store.port) as wire:
            wire("WATCH", "w")
            client.execute_command(*command)
            wire("MULTI")
            wire("SET", "done", "1")
            answer = wire("EXEC")
            assert answer in (None, ["OK"])
            return answer is None

    assert changes("SET", "w", "2")
    assert changes("INCR", "w")
    assert changes("DEL", "w")
    assert changes("PEXPIRE", "w", 1000)
    assert changes("FLUSHDB")
    assert changes("FLUSHALL")
    assert changes("SWAPDB", 0, 1)
    assert not changes("GET", "w")
    assert not changes("SET", "other", "2")


def test_unwatch_and_an_exec_end_the_watching(store: Store, client: redis.Redis):
    """After either of them a change of the key has no effect on EXEC."""
    with RespConnection(store.port) as wire:
        wire("WATCH", "k")
        wire("UNWATCH")
        client.set("k", 1)
        wire("MULTI")
        assert wire("EXEC") == []
        wire("WATCH", "k")
        client.set("k", 2)
        wire("MULTI")
        assert wire("EXEC") is None
        client.set("k", 3)
        wire("MULTI")
        assert wire("EXEC") == []


def test_a_closed_client_leaves_no_watch_behind(store: Store, client: redis.Redis):
    """INFO counts the watching clients."""
    with RespConnection(store.port) as wire:
        wire("WATCH", "k")
        assert client.info("clients")["watching_clients"] == 1
    while client.info("clients")["watching_clients"]:
        pass


def test_counters_by_optimistic_locking_lose_nothing(store: Store, client: redis.Redis):
    """Four clients read, add and write under WATCH: every addition that EXEC confirmed is there."""
    client.set("counter", 0)

    def add() -> None:
        with store.client() as own, own.pipeline() as pipe:
            for _ in range(50):
                while True:
                    try:
                        pipe.watch("counter")
                        value = int(pipe.get("counter"))
                        pipe.multi()
                        pipe.set("counter", value + 1)
                        pipe.execute()
                        break
                    except redis.WatchError:
                        continue

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("counter") == "200"


def test_reset_ends_a_transaction_and_everything_else(store: Store):
    """RESET restores the connection's defaults: database, name, protocol, no transaction."""
    with RespConnection(store.port) as wire:
        wire("HELLO", "3")
        wire("SELECT", "3")
        wire("CLIENT", "SETNAME", "me")
        wire("MULTI")
        assert wire("RESET") == "RESET"
        assert wire("GET", "nothing") is None
        assert wire("CLIENT", "GETNAME") is None
        assert b" db=0 " in wire("CLIENT", "INFO")


def test_pushes_do_not_come_in_the_middle_of_a_transaction_s_reply(store: Store):
    """A RESP3 client that subscribes to its own messages receives them after the reply."""
    with RespConnection(store.port) as wire:
        wire("HELLO", "3")
        wire("SUBSCRIBE", "c")
        wire("MULTI")
        wire("PUBLISH", "c", "one")
        wire("PUBLISH", "c", "two")
        assert wire("EXEC") == [1, 1]
        assert wire.read() == [b"message", b"c", b"one"]
        assert wire.read() == [b"message", b"c", b"two"]
