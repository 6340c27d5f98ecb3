"""The modes of `verbena cli`: --stat, --latency, --pipe, --scan."""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import time
from typing import BinaryIO

from verbena.kv.client.resp_connection import ErrorReply, RespConnection, pack
from verbena.kv.server.info import human


def info(wire: RespConnection, *sections: str) -> dict[str, str]:
    reply = wire.call("INFO", *sections)
    if not isinstance(reply, bytes):
        return {}
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def stat(wire: RespConnection, interval_s: float, count: int) -> int:
    """Prints one line of statistics per interval, with the heading every 20 lines. Returns 1 if the server
    has no INFO."""
    before: int | None = None
    for number in range(count or sys.maxsize):
        now = info(wire)
        if not now:
            print("verbena: the server has no INFO", file=sys.stderr)
            return 1
        if number % 20 == 0:
            print(f"{'keys':<10} {'mem':<10} {'clients':<8} {'blocked':<8} {'requests':<20} connections")
        keys = sum(int(value.split("keys=")[1].split(",")[0]) for value in now.values() if "keys=" in value)
        total = int(now.get("total_commands_processed", 0))
        requests = f"{total} (+{total - before if before is not None else 0})"
        memory = human(int(now.get("used_memory", 0)))
        print(
            f"{keys:<10} {memory:<10} {now.get('connected_clients', '?'):<8} "
            f"{now.get('blocked_clients', '?'):<8} {requests:<20} "
            f"{now.get('total_connections_received', '?')}",
            flush=True,
        )
        before = total
        if number + 1 != (count or sys.maxsize):
            time.sleep(interval_s)
    return 0


def latency(wire: RespConnection, seconds: float) -> int:
    """Measures PINGs for `seconds`; with 0, until interrupted."""
    times: list[float] = []
    ends = time.monotonic() + seconds if seconds else float("inf")
    shown = 0.0
    with contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() < ends:
            started = time.perf_counter_ns()
            wire.call("PING")
            times.append((time.perf_counter_ns() - started) / 1e6)
            if time.monotonic() - shown > 0.1 and sys.stdout.isatty():
                shown = time.monotonic()
                print(f"\r{_latency(times)}", end="", flush=True)
            time.sleep(0.001)
    if times:
        print(("\r" if sys.stdout.isatty() else "") + _latency(times))
    return 0


def _latency(times: list[float]) -> str:
    return (
        f"min: {min(times):.3f}, max: {max(times):.3f}, avg: {sum(times) / len(times):.3f} ms "
        f"({len(times)} samples)"
    )


def scan(wire: RespConnection, pattern: str, count: int) -> int:
    """Prints the matching keys, one per line. Returns 1 after an error reply."""
    cursor: bytes = b"0"
    while True:
        reply = wire.call("SCAN", cursor, *(("MATCH", pattern) if pattern else ()), "COUNT", str(count))
        if isinstance(reply, ErrorReply):
            print(f"(error) {reply}", file=sys.stderr)
            return 1
        cursor, keys = reply
        for key in keys:
            sys.stdout.buffer.write(key + b"\n")
        sys.stdout.buffer.flush()
        if cursor == b"0":
            return 0


def pipe(wire: RespConnection, source: BinaryIO) -> int:
    """Sends the input, RESP or inline commands, and counts the replies. Returns 1 after errors."""
    end = secrets.token_hex(10).encode()  # the reply to a final ECHO marks the end of the replies
    failed: list[BaseException] = []

    def send() -> None:
        try:
            while chunk := source.read(65536):
                wire.socket.sendall(chunk)
            wire.socket.sendall(pack("ECHO", end))
        except OSError as error:
            failed.append(error)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    replies = errors = 0
    try:
        while (reply := wire.read()) != end:
            replies += 1
            if isinstance(reply, ErrorReply):
                errors += 1
                print(reply, file=sys.stderr)
    except EOFError:
        print("verbena: the server closed the connection", file=sys.stderr)
        return 1
    sender.join()
    print(f"errors: {errors}, replies: {replies}")
    return 1 if errors or failed else 0
