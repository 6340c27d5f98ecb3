"""A server that is killed while clients write. For each client, the effect of its first m commands is
recovered, in order: at least of all that were answered, at most of all that were sent. This holds for every
policy, because a command is in the kernel before it is answered; `always` also guarantees it for a crash of
the machine."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from kv.storage.keeping import contents, kept, serving
from support.kv.resp import Connection, pack

CLIENTS = 4
WINDOW = 16


def command(client: int, number: int) -> tuple[bytes, ...]:
    """Command `number` of a client. Each gives a different result if it is executed twice or not at all."""
    name = b"%d:" % client
    text = b"%d," % number
    return (
        (b"APPEND", name + b"text", text),
        (b"RPUSH", name + b"list", text),
        (b"INCR", name + b"count"),
        (b"MSET", name + b"one", text, name + b"other", text),
        (b"SET", b"%skey:%d" % (name, number % 50), text),
        (b"DEL", b"%skey:%d" % (name, number * 7 % 50)),
        (b"LPOP", name + b"list") if number % 3 else (b"SETRANGE", name + b"text", b"0", text),
    )[number % 7]


class Model:
    """The effect of a client's commands on its keys."""

    def __init__(self) -> None:
        self.keys: dict[bytes, Any] = {}

    def do(self, words: tuple[bytes, ...]) -> None:
        keys, name, key = self.keys, words[0], words[1]
        if name == b"APPEND":
            keys[key] = keys.get(key, b"") + words[2]
        elif name == b"SETRANGE":
            keys[key] = words[3] + keys.get(key, b"")[len(words[3]) :]
        elif name == b"RPUSH":
            keys.setdefault(key, []).append(words[2])
        elif name == b"LPOP":
            if key in keys:
                keys[key] = keys[key][1:]
                if not keys[key]:
                    del keys[key]
        elif name == b"INCR":
            keys[key] = b"%d" % (int(keys.get(key, b"0")) + 1)
        elif name == b"DEL":
            keys.pop(key, None)
        else:
            keys.update(zip(words[1::2], words[2::2], strict=True))


class Writer(threading.Thread):
    """A client that keeps several commands in flight until the server is gone."""

    def __init__(self, number: int, port: int, enough: threading.Semaphore) -> None:
        super().__init__()
        self.number, self.enough = number, enough
        self.connection = Connection(port)
        self.sent = self.answered = 0

    def run(self) -> None:
        try:
            while True:
                while self.sent - self.answered < WINDOW:
                    words = command(self.number, self.sent)
                    self.sent += 1
                    self.connection.socket.sendall(pack(*words))
                reply = self.connection.receive()
                assert not (isinstance(reply, str) and reply != "OK"), reply
                self.answered += 1
                self.enough.release()
        except ConnectionError:
            pass
        finally:
            self.connection.close()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_what_was_answered_is_there_after_a_kill(tmp_path: Path, fsync: str, seed: int) -> None:
    """At a random instant, with or without a running snapshot; three times in the same directory."""
    chance = random.Random(seed)
    models = [Model() for _ in range(CLIENTS)]
    done = [0] * CLIENTS
    for _ in range(3):
        enough = threading.Semaphore(0)
        with serving(tmp_path, fsync) as (process, port):
            writers = [Writer(number, port, enough) for number in range(CLIENTS)]
            for writer in writers:
                writer.sent = writer.answered = done[writer.number]
                writer.start()
            with Connection(port) as admin:
                saves = chance.randrange(4)
                for _ in range(chance.randrange(50, 1500)):
                    enough.acquire()
                    if saves and chance.random() < 0.01:
                        saves -= 1
                        admin.run(b"BGSAVE")
                process.send_signal(signal.SIGKILL)
                process.wait()
            for writer in writers:
                writer.join()
        with kept(tmp_path) as (server, _, _):
            found = {key: value for (_, key), (_, value, _) in contents(server).items()}
        for writer in writers:
            done[writer.number] = check(writer, models[writer.number], found, done[writer.number])
        assert not found, "keys that nobody wrote"


@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_a_kill_within_transactions_leaves_none_in_part(tmp_path: Path, fsync: str) -> None:
    """The effect of EXEC is recovered as a whole; and it is recovered if it was answered."""
    chance, commands = (
        random.Random(fsync),
        (b"INCR one", b"RPUSH list x", b"INCR other", b"HINCRBY hash f 1"),
    )
    request = b"".join(pack(*words.split()) for words in (b"MULTI", *commands, b"EXEC"))
    answered = sent = 0
    for _ in range(3):
        with serving(tmp_path, fsync) as (process, port), Connection(port) as connection:
            for _ in range(chance.randrange(20, 400)):
                connection.socket.sendall(request)
                sent += 1
                if sent - answered > WINDOW:
                    assert len([connection.receive() for _ in range(6)][-1]) == 4
                    answered += 1
            process.send_signal(signal.SIGKILL)
            process.wait()
        with kept(tmp_path) as (server, _, _):
            found = {key: value for (_, key), (_, value, _) in contents(server).items()}
        counts = {int(found[b"one"]), int(found[b"other"]), len(found[b"list"]), int(found[b"hash"][0][1])}
        assert len(counts) == 1
        assert answered <= min(counts) <= sent
        answered = sent = min(counts)


def check(writer: Writer, model: Model, found: dict[bytes, Any], first: int) -> int:
    """Returns how many commands of the writer are in effect, and removes its keys from `found`."""
    own = {key: found.pop(key) for key in list(found) if key.startswith(b"%d:" % writer.number)}
    for number in range(first, writer.answered):
        model.do(command(writer.number, number))
    for number in range(writer.answered, writer.sent + 1):
        if model.keys == own:
            return number
        model.do(command(writer.number, number))
    raise AssertionError(
        f"client {writer.number}: {writer.answered} answered, {writer.sent} sent, and no such prefix"
    )
