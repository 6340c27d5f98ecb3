"""CLUSTER compared with the distribution's redis-server in cluster mode: equal replies and equal errors."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from support.kv.cluster import Cluster, ReplyError, RespConnection, cluster

SERVER = shutil.which("redis-server")
NOBODY = "0" * 40
pytestmark = pytest.mark.skipif(SERVER is None, reason="redis-server is not installed")

# The order matters: some depend on changes of those before. "ME" is the node's own id.
ASKED = """
SLOTS | MYID | LINKS | KEYSLOT foo | KEYSLOT | KEYSLOT a b
COUNTKEYSINSLOT 1 | COUNTKEYSINSLOT 16384 | COUNTKEYSINSLOT -1 | COUNTKEYSINSLOT x | COUNTKEYSINSLOT
GETKEYSINSLOT 1 10 | GETKEYSINSLOT 1 -1 | GETKEYSINSLOT 1 x | GETKEYSINSLOT 16384 1 | GETKEYSINSLOT 1
ADDSLOTS | ADDSLOTS x | ADDSLOTS 16384 | ADDSLOTS -1 | ADDSLOTS 1 1 | ADDSLOTS 1 2 | ADDSLOTS 1
ADDSLOTSRANGE 5 | ADDSLOTSRANGE 5 4 | ADDSLOTSRANGE 5 6 7 | ADDSLOTSRANGE 5 x | ADDSLOTSRANGE 5 6 6 7
ADDSLOTSRANGE 5 6 | ADDSLOTSRANGE 4 6 | INFO | NODES | SLOTS | SHARDS
DELSLOTS | DELSLOTS 9 | DELSLOTS x | DELSLOTS 1 1 | DELSLOTS 1
DELSLOTSRANGE 8 9 | DELSLOTSRANGE 6 5 | DELSLOTSRANGE 5 6 | DELSLOTSRANGE 5
SETSLOT | SETSLOT 1 | SETSLOT 1 NODE | SETSLOT x STABLE | SETSLOT 16384 STABLE | SETSLOT 2 STABLE
SETSLOT 2 STABLE x | SETSLOT 2 NODE NOBODY | SETSLOT 2 MIGRATING NOBODY | SETSLOT 2 IMPORTING NOBODY
SETSLOT 3 MIGRATING NOBODY | SETSLOT 3 IMPORTING NOBODY | SETSLOT 2 BOGUS NOBODY
SETSLOT 2 NODE ME | SETSLOT 2 IMPORTING ME
MEET | MEET 1 | MEET x y | MEET 127.0.0.1 99999 | MEET 127.0.0.1 abc | MEET 127.0.0.1 1 x
FORGET | FORGET NOBODY | FORGET ME | FORGET short
FAILOVER | FAILOVER FORCE | FAILOVER TAKEOVER | FAILOVER BOGUS | FAILOVER FORCE X
REPLICATE | REPLICATE NOBODY | REPLICATE ME | REPLICATE short
REPLICAS NOBODY | REPLICAS ME | SLAVES ME | COUNT-FAILURE-REPORTS NOBODY | COUNT-FAILURE-REPORTS ME
SET-CONFIG-EPOCH x | SET-CONFIG-EPOCH -1 | SET-CONFIG-EPOCH 5 | SAVECONFIG | BUMPEPOCH
RESET BOGUS | RESET SOFT X | FLUSHSLOTS | RESET SOFT | SLOTS | MYID | NOSUCH |
"""


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Its bus uses the port plus 10000. Both are below the range of ephemeral ports."""
    folder = tmp_path_factory.mktemp("redis")
    with contextlib.ExitStack() as stack:
        while True:
            port = random.randrange(10000, 20000)
            try:
                for one in (port, port + 10000):
                    stack.enter_context(socket.create_server(("127.0.0.1", one)))
                break
            except OSError:
                continue
    words = ["--port", str(port), "--cluster-enabled", "yes", "--dir", str(folder), "--save", ""]
    with subprocess.Popen([str(SERVER), *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("Ready to accept connections" in line for line in process.stdout)
        yield port
        process.kill()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), 1, assign=False) as found:
        yield found


class Asked:
    """One of the two servers; its own id and port are replaced in its replies."""

    def __init__(self, wire: RespConnection, port: int) -> None:
        self.wire, self.port = wire, port
        self.id = self.wire.run("CLUSTER", "MYID").decode()

    def __call__(self, words: list[str]) -> Any:
        try:
            meant = [{"ME": self.id, "NOBODY": NOBODY}.get(word, word) for word in words]
            return self._plain(self.wire.run("CLUSTER", *meant))
        except ReplyError as error:
            return f"-{error}".replace(self.id, "ME")

    def _plain(self, reply: Any) -> Any:
        if isinstance(reply, list):
            return [self._plain(one) for one in reply]
        if reply == self.port:
            return "PORT"
        return reply.decode().replace(self.id, "ME") if isinstance(reply, bytes) else reply


SESSIONS = re.compile(r"'sessions', '[^']*', ")  # what ours adds to each node of CLUSTER SHARDS


def shape(words: list[str], reply: Any) -> Any:
    """The parts that must be equal, for replies with addresses and epochs."""
    name = words[0] if words else ""
    if name == "INFO":
        lines = dict(line.split(":") for line in reply.split())
        return {key: None if "epoch" in key else value for key, value in lines.items()}
    if name == "NODES":
        id, address, *rest = reply.split()
        return id, address.count(":"), address.count("@"), address.count(","), rest[:4], rest[5:]
    if name in ("SLOTS", "SHARDS"):
        return SESSIONS.sub("", str(reply).replace("127.0.0.1", ""))
    if name == "BUMPEPOCH":
        return reply.split()[1].isdigit()
    return reply


def test_every_subcommand_answers_as_redis_does(redis_port: int, made: Cluster) -> None:
    different = {}
    with RespConnection("127.0.0.1", redis_port) as one, RespConnection("127.0.0.1", made[0].port) as other:
        theirs, ours = Asked(one, redis_port), Asked(other, made[0].port)
        for asked in ASKED.strip().replace("\n", " | ").split("|"):
            words = asked.split()
            expected, found = shape(words, theirs(words)), shape(words, ours(words))
            if expected != found:
                different[asked.strip()] = (expected, found)
    assert different == {}
