"""What do leases cost: to connect, to revoke a thousand of them, and for a reader that keeps its own?"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import redis

from bench.figure import Figure, program
from verbena import kv, sync, transport
from verbena.cli.measure.stores import Store, verbena_store

SESSIONS = 1000
ROUNDS = 5
REVOKED_WITHIN_MS = 100
LONGEST_WAIT_MS = 1.0  # beyond the pauses that the machine causes
USER = ["on", ">secret", "~*", "&*", "+@all"]

# A reader in its own process: for each line of input it reads for that many seconds, and prints its
# longest GET.
READER = """
import sys, time
from verbena import kv
with kv.Client(sys.argv[1], wire="shm") as store:
    store.get("key"), store.get("key")
    for line in sys.stdin:
        print(flush=True)
        end, longest = time.perf_counter() + float(line), 0.0
        before = time.perf_counter()
        while before < end:
            store.get("key")
            now = time.perf_counter()
            longest, before = max(longest, now - before), now
        print(longest * 1000, store.stats().by_message, flush=True)
"""


def measure(options: argparse.Namespace) -> list[Figure]:
    limit = {"VERBENA_NETWORK_RDMA_MAX_CONNECTIONS": str(2 * SESSIONS)}
    with verbena_store(**limit) as store, redis.Redis(port=store.port) as admin:
        admin.set("key", "value")
        return [_connections(store, options.seconds), *_revocations(store, admin)]


def _connections(store: Store, seconds: float) -> Figure:
    """From the first byte to the first one-sided GET, beside redis-py with its first GET."""
    pairs = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        with kv.Client(store.sessions, wire="shm") as client:
            client.get("key")
            middle = time.perf_counter()
        before = time.perf_counter()
        with redis.Redis(port=store.port) as plain:
            plain.get("key")
            pairs.append((middle - began, time.perf_counter() - before))
    own, base = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
    baseline = f"redis-py over TCP: {base:.2f} ms"
    return Figure("connect and GET, shm", f"{own:.2f} ms", baseline, f"{own / base:.1f}")


def _revocations(store: Store, admin: redis.Redis) -> list[Figure]:
    """ACL SETUSER takes a user's right to read; a thousand sessions of that user have leases."""
    node = transport.Node(transport.Settings(max_connections=SESSIONS + 10))
    took_ms, waits_ms, quiet_ms = [], [], []
    command = [sys.executable, "-c", READER, store.sessions]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        for _ in range(ROUNDS):
            admin.execute_command("ACL", "SETUSER", "reader", *USER)
            clients = [_reader(store, node) for _ in range(SESSIONS)]
            quiet_ms.append(_longest(reader, 1.0)[0])
            _start(reader, 1.0)
            time.sleep(0.3)
            began = time.perf_counter()
            admin.execute_command("ACL", "SETUSER", "reader", "resetkeys")
            took_ms.append((time.perf_counter() - began) * 1000)
            waits_ms.append(_result(reader)[0])
            for client in clients:
                client.session.close()
        assert reader.stdin is not None
        reader.stdin.close()
    node.close()
    took, wait, quiet = (statistics.median(values) for values in (took_ms, waits_ms, quiet_ms))
    return [
        Figure(
            f"revoke the leases of {SESSIONS} sessions",
            f"{took:.1f} ms",
            "–",
            "–",
            f"<= {REVOKED_WITHIN_MS} ms",
            took <= REVOKED_WITHIN_MS,
        ),
        Figure(
            "another reader's longest GET meanwhile",
            f"{wait:.2f} ms",
            f"without it: {quiet:.2f} ms",
            f"{wait / quiet:.1f}",
            f"<= {LONGEST_WAIT_MS:g} ms more",
            wait <= quiet + LONGEST_WAIT_MS,
        ),
    ]


def _reader(store: Store, node: transport.Node) -> kv.Client:
    session = sync.connect(store.sessions, node=node, wire="shm")
    client = kv.Client(session, user="reader", password="secret")
    client.get("key")
    return client


def _start(reader: subprocess.Popen[str], seconds: float) -> None:
    assert reader.stdin is not None
    assert reader.stdout is not None
    print(seconds, file=reader.stdin, flush=True)
    reader.stdout.readline()


def _result(reader: subprocess.Popen[str]) -> tuple[float, int]:
    """The longest GET in ms, and the number of GETs that were messages."""
    assert reader.stdout is not None
    longest_ms, messages = reader.stdout.readline().split()
    return float(longest_ms), int(messages)


def _longest(reader: subprocess.Popen[str], seconds: float) -> tuple[float, int]:
    _start(reader, seconds)
    return _result(reader)


if __name__ == "__main__":
    program(measure, description=__doc__ or "")
