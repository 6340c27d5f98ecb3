"""The drill without a running node: another process serves while this one calls and copies; afterwards both
compare their counts, so that a lost or repeated call is found."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from verbena.cli import failover_drill, remote, text
from verbena.cli.progress import Waiting
from verbena.config.flags import given_flags, load_with_flags
from verbena.errors import VerbenaError, setup_error
from verbena.sync import Session, connect
from verbena.transport import RemoteRegion
from verbena.transport.configured import settings_from

BLOCK_BYTES = 1 << 20
SETTLE_S = 0.3
ANSWER_S = 60.0
EXIT_S = 15.0


@dataclass
class Traffic:
    """Numbered calls on one thread, verified copies on another, until stop(). Failures are appended to
    `problems`."""

    session: Session
    region: RemoteRegion
    calls: int = 0
    blocks: int = 0
    longest_s: float = 0.0
    problems: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for work in (self._call, self._copy):
            thread = threading.Thread(target=self._until_stopped, args=(work,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_S)

    def _until_stopped(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                work()
        except VerbenaError as error:
            self.problems.append(f"{error.operation}: {error.what}")

    def _call(self) -> None:
        number = self.calls.to_bytes(8, "little")
        began = time.monotonic()
        if self.session.call("note", number, timeout_s=ANSWER_S) != number:
            self.problems.append(f"call {self.calls}: wrong reply")
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.calls += 1

    def _copy(self) -> None:
        block = os.urandom(BLOCK_BYTES)
        back = bytearray(BLOCK_BYTES)
        self.session.write(self.region, block)
        self.session.read_into(self.region, back)
        if zlib.crc32(back) != zlib.crc32(block):
            self.problems.append(f"block {self.blocks}: wrong bytes")
        self.blocks += 1


class Server:
    """The server process."""

    def __init__(self, options: argparse.Namespace, secret: str) -> None:
        command = [sys.executable, "-m", "verbena.cli.drill.server"]
        # Sent through the pipe, because a secret on the command line would be visible to other users.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"secret": secret, "config": options.config, "flags": given_flags(options)}
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            raise setup_error("peer_died", operation="start the other process")
        answer = json.loads(line)
        self.address: str = answer["address"]
        self.region = RemoteRegion.from_bytes(bytes.fromhex(answer["region"]))

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Ends the process's input and waits for it to exit; kills it after EXIT_S and raises."""
        try:
            self._process.communicate(timeout=EXIT_S)
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise


def run(options: argparse.Namespace) -> int:
    secret = secrets.token_hex(32)
    settings = replace(
        settings_from(load_with_flags(options)), secret=secret.encode(), node_name="", metrics_listen=""
    )
    server = Server(options, secret)
    try:
        with (
            connect(server.address, config=settings) as session,
            connect(server.address, config=settings) as asker,
            Waiting("breaking the wire, and waiting until the session is back"),
        ):
            report = _drill(options, server, session, asker)
    finally:
        server.close()
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print(report)
    return 0 if report["ok"] else 1


def _drill(options: argparse.Namespace, server: Server, session: Session, asker: Session) -> dict[str, Any]:
    traffic = Traffic(session, server.region)
    wire = session.wire
    traffic.start()
    time.sleep(SETTLE_S)
    rounds = []
    try:
        # First round: the broken wire may be dialled again at once. Second round: it must rest, so another
        # wire is used.
        for rest_s in dict.fromkeys((0.0, options.rest)):
            answer = remote.ask(
                asker,
                "verbena.drill",
                failover_drill.MAX_WAIT_S,
                wire=options.wire,
                rest_s=rest_s,
                session=f"{session.id:x}",
            )
            rounds += [{"rest_s": rest_s, **one} for one in answer["sessions"]]
            time.sleep(SETTLE_S)
    finally:
        traffic.stop()
    seen = json.loads(session.call("count", timeout_s=ANSWER_S))
    wires = session.metrics().values()
    lost, duplicated = traffic.calls - seen["distinct"], seen["calls"] - seen["distinct"]
    return {
        "node": f"process {server.pid}",
        "wire": wire,
        "sessions": rounds,
        "calls": traffic.calls,
        "lost": lost,
        "duplicated": duplicated,
        "copied_bytes": 2 * traffic.blocks * BLOCK_BYTES,
        "longest_call_s": round(traffic.longest_s, 6),
        "replayed_messages": sum(wire["replayed_messages"] for wire in wires),
        "problems": traffic.problems,
        "ok": bool(rounds)
        and all(one["ok"] for one in rounds)
        and not (lost or duplicated or traffic.problems),
    }


def _print(report: dict[str, Any]) -> None:
    print(f"two processes, session over {report['wire']}, with calls and copies throughout")
    if not report["sessions"]:
        print(f"no link was broken: the session uses {report['wire']}")
        return
    print(failover_drill.table(report["sessions"]))
    print(failover_drill.verdict(report["sessions"]))
    print(
        f"{report['calls']:,} calls: {report['lost']} lost, {report['duplicated']} duplicated;"
        f" {report['copied_bytes'] / 1e6:,.0f} MB copied and verified;"
        f" longest call {text.duration(report['longest_call_s'] * 1e9)};"
        f" {report['replayed_messages']} messages retransmitted"
    )
    for problem in report["problems"]:
        print(f"  error: {problem}")
