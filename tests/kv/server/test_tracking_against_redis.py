"""CLIENT TRACKING compared with redis-server: equal scripts on several connections give equal replies."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kv.grammar import TEMPLATES, WORDS, expand
from kv.redis_peer import MISSING, SERVER, Peer, redis_server
from kv.transcripts import Cast
from support.kv.kv_store import running

pytestmark = pytest.mark.skipif(SERVER is None, reason=MISSING)

SCRIPTS = {
    "own and others' changes": """
        a: CLIENT TRACKING on
        a: GET x
        b: SET x 1
        b: SET x 2
        a: GET x | SET x 3 | GET x | PING
        b: DEL x
        a: MGET x y
        b: MSET x 1 y 2 z 3
    """,
    "resp2 hears nothing": """
        a2: CLIENT TRACKING on
        a2: CLIENT TRACKINGINFO
        a2: GET x
        b: SET x 1
        a2: CLIENT GETREDIR
    """,
    "from resp2 to resp3 and back": """
        a2: CLIENT TRACKING on
        a2: GET x
        a2: HELLO 3 | CLIENT GETREDIR
        b: SET x 1
        a2: GET x
        a2: PING | HELLO 2
        b: SET x 2
    """,
    "redirected to a listener": """
        a2: CLIENT TRACKING on REDIRECT {r2}
        a2: CLIENT GETREDIR | CLIENT TRACKINGINFO
        a2: GET x
        b: SET x 1
        r2: SUBSCRIBE __redis__:invalidate
        a2: GET x
        b: SET x 2
        a2: GET x | SET x 3
        b: FLUSHALL
        a2: CLIENT TRACKING off | CLIENT GETREDIR
        a2: GET x
        b: SET x 5
    """,
    "a listener to anything": """
        a2: CLIENT TRACKING on REDIRECT {r2} BCAST
        r2: PSUBSCRIBE elsewhere
        b: SET x 2
        b: FLUSHDB
    """,
    "redirected to resp3": """
        a: CLIENT TRACKING on REDIRECT {r}
        a: GET x
        b: SET x 2
        b: FLUSHALL
        a: CLIENT TRACKING on REDIRECT {r2}
        a: GET x
        b: SET x 3
    """,
    "redirected to oneself": """
        a: CLIENT TRACKING on REDIRECT {a}
        a: CLIENT GETREDIR | GET x | SET x 1
        a2: CLIENT TRACKING on REDIRECT {a2}
        a2: GET x | SET x 1
    """,
    "redirection broken": """
        a: CLIENT TRACKING on REDIRECT {r}
        a: GET x
        b: CLIENT KILL ID {r}
        gone r
        a: CLIENT TRACKINGINFO
        b: SET x 1
        a: CLIENT TRACKINGINFO
        a: GET x
        b: SET x 2
        a: CLIENT TRACKING on | CLIENT TRACKINGINFO | GET x
        b: SET x 3
    """,
    "redirection broken, resp2": """
        a2: CLIENT TRACKING on REDIRECT {r} BCAST PREFIX x
        b: CLIENT KILL ID {r}
        gone r
        b: SET x 1
        a2: CLIENT TRACKINGINFO
        b: FLUSHALL
    """,
    "broadcasts": """
        a: CLIENT TRACKING on BCAST
        c: CLIENT TRACKING on BCAST PREFIX user: PREFIX order:
        c: CLIENT TRACKINGINFO
        b: SET user:2 1 | SET user:1 1 | SET order:1 1 | SET other 1 | SET user:2 2
        b: DEL none
        a: SET mine 1 | SET user:9 1
        c: CLIENT TRACKING on BCAST PREFIX thing: | CLIENT TRACKINGINFO
        b: SET thing:1 1
        b: FLUSHALL
        c: CLIENT TRACKING off | CLIENT TRACKINGINFO
        b: SET user:1 1
    """,
    "without one's own": """
        a: CLIENT TRACKING on NOLOOP
        c: CLIENT TRACKING on BCAST NOLOOP
        a: CLIENT TRACKINGINFO | GET x | SET x 1 | GET y
        b: SET x 2 | SET y 1
        c: SET x 1 | SET y 2 | SET z 1
        b: SET x 1
        c: MULTI | SET p 1 | SET q 1 | EXEC
        a: FLUSHALL
    """,
    "opting in": """
        a: CLIENT TRACKING on OPTIN
        a: GET x
        b: SET x 1
        a: CLIENT CACHING yes | CLIENT TRACKINGINFO | GET x | GET y | CLIENT TRACKINGINFO
        b: SET x 2 | SET y 2
        a: CLIENT CACHING yes | PING | GET x
        b: SET x 3
        a: CLIENT CACHING yes | CLIENT ID | GET x
        b: SET x 4
        a: CLIENT CACHING yes | MULTI | GET x | GET y | EXEC | GET z
        b: MSET x 1 y 1 z 1
        a: MULTI | GET x | CLIENT CACHING yes | GET y | EXEC | GET z
        b: MSET x 1 y 1 z 1
        a: CLIENT CACHING yes | NOSUCH | GET x
        b: SET x 5
        a: CLIENT CACHING yes | GET | GET x
        b: SET x 6
    """,
    "opting out": """
        a: CLIENT TRACKING on OPTOUT
        a: GET x | CLIENT CACHING no | CLIENT TRACKINGINFO | GET y | GET z
        b: MSET x 1 y 1 z 1
    """,
    "mistakes": """
        a: CLIENT TRACKING
        a: CLIENT TRACKING maybe
        a: CLIENT TRACKING on FOO
        a: CLIENT TRACKING off FOO
        a: CLIENT TRACKING off BCAST OPTIN PREFIX a
        a: CLIENT TRACKING on REDIRECT
        a: CLIENT TRACKING on REDIRECT x
        a: CLIENT TRACKING on REDIRECT 0
        a: CLIENT TRACKING on REDIRECT -3
        a: CLIENT TRACKING on REDIRECT 99999999
        a: CLIENT TRACKING on REDIRECT 99999999999999999999
        a: CLIENT TRACKING on REDIRECT {b} REDIRECT {b}
        a: CLIENT TRACKING on PREFIX
        a: CLIENT TRACKING on PREFIX a
        a: CLIENT TRACKING on BCAST OPTIN
        a: CLIENT TRACKING on BCAST OPTOUT
        a: CLIENT TRACKING on OPTIN OPTOUT
        a: CLIENT TRACKING on BCAST PREFIX ab PREFIX a
        a: CLIENT TRACKING on BCAST PREFIX a PREFIX ab
        a: CLIENT TRACKING on BCAST PREFIX a PREFIX a
        a: CLIENT TRACKING on BCAST PREFIX '' PREFIX a
        a: CLIENT TRACKINGINFO
        a: CLIENT CACHING yes
        a: CLIENT CACHING maybe
        a: CLIENT CACHING
        a: CLIENT TRACKING on BCAST PREFIX ab PREFIX b
        a: CLIENT TRACKING on BCAST PREFIX a
        a: CLIENT TRACKING on BCAST PREFIX abc
        a: CLIENT TRACKING on BCAST PREFIX b
        a: CLIENT TRACKING on BCAST
        a: CLIENT TRACKING on
        a: CLIENT TRACKING on OPTIN
        a: CLIENT CACHING yes
        a: CLIENT TRACKINGINFO
        a: CLIENT TRACKING off
        a: CLIENT TRACKING on BCAST
        a: CLIENT TRACKING on BCAST PREFIX a
        a: CLIENT TRACKING off
        a: CLIENT TRACKING off
        a: CLIENT TRACKING on OPTIN
        a: CLIENT TRACKING on OPTOUT
        a: CLIENT TRACKING on BCAST
        a: CLIENT CACHING no
        a: CLIENT CACHING maybe
        a: CLIENT CACHING yes
        a: CLIENT TRACKING on NOLOOP
        a: CLIENT TRACKINGINFO
        a: CLIENT CACHING yes
        a: CLIENT TRACKING on OPTOUT
        a: CLIENT TRACKINGINFO
        a: CLIENT CACHING yes
        a: CLIENT TRACKINGINFO extra
        a: CLIENT GETREDIR extra
    """,
    "reset": """
        a: CLIENT TRACKING on BCAST NOLOOP
        a: RESET
        a: CLIENT TRACKINGINFO
        b: SET x 1
        a: HELLO 3 | CLIENT TRACKING on
        a: GET x
        b: SET x 2
    """,
    "everything goes": """
        a: CLIENT TRACKING on
        a2: CLIENT TRACKING on
        c: CLIENT TRACKING on BCAST PREFIX none
        a: GET x
        b: FLUSHALL
        b: SET x 1
        b: SELECT 3 | FLUSHDB | SELECT 0
        a: FLUSHALL | PING
        a: MULTI | SET x 1 | GET x | FLUSHALL | GET x | EXEC
        b: SET x 1
    """,
    "transactions": """
        a: CLIENT TRACKING on
        a: MULTI | GET x | SET x 1 | GET x | EXEC
        b: SET x 2
        b: MULTI | SET x 3 | EXEC
        a: GET x | GET y
        b: MULTI | SET x 3 | DEL y | INCR z | EXEC
        a: MULTI | GET x | DISCARD
        b: SET x 4
        a: MULTI | GET x | NOSUCH | EXEC
        b: SET x 5
    """,
    "whatever reads": """
        b: RPUSH list a b c
        b: SADD set a b
        b: ZADD zset 1 a
        b: HSET hash f 1
        b: SET string 12
        a: CLIENT TRACKING on
        a: LRANGE list 0 -1 | SMEMBERS set | ZRANGE zset 0 -1 | HGETALL hash | STRLEN string
        b: RPOP list | SREM set a | ZADD zset 2 a | HDEL hash f | APPEND string 3
        a: EXISTS e1 e2 | TTL t | TYPE u | TOUCH v | OBJECT ENCODING o | GET list | DUMP d
        b: MSET e1 1 e2 1 t 1 u 1 v 1 o 1 list 1 d 1
        a: SUNION s1 s2 | ZUNION 2 z1 z2 | SINTERCARD 2 i1 i2 | LCS l1 l2 | BITCOUNT b1 | PFCOUNT h1 h2
        b: MSET s1 1 s2 1 z1 1 z2 1 i1 1 i2 1 l1 1 l2 1 b1 1 h1 1 h2 1
        a: SORT_RO so | GETBIT gb 1 | GETRANGE gr 0 1 | HSCAN hs 0 | MEMORY USAGE mu | SUBSTR su 0 1
        b: MSET so 1 gb 1 gr 1 hs 1 mu 1 su 1
        a: SCAN 0 MATCH none COUNT 1000 | KEYS none | DBSIZE
        a: SORT so2 | SET w1 1 GET | GETSET w2 1 | INCR w3 | COPY w4 w5
        b: MSET so2 1 w1 1 w2 1 w3 1 w4 1
        a: SPUBLISH ch x | PUBLISH ch x | WATCH wa | UNWATCH
        b: SET ch 1 | SET wa 1
    """,
    "whatever writes": """
        b: SET x 1 | RPUSH l a b | SET y 1
        a: CLIENT TRACKING on
        a: GET x
        b: RENAME x z
        b: RENAME z x
        a: GET z
        b: RENAME x z
        a: MGET x y z
        b: COPY z x
        a: MGET x y z
        b: MOVE x 5
        a: MGET x y z
        b: EXPIRE y 1000
        a: MGET x y z
        b: PERSIST y
        a: MGET x y z
        b: PERSIST y
        b: SET y 1 NX
        b: SETRANGE y 0 a
        a: LRANGE l 0 -1
        b: LREM l 0 nothing
        b: LPOP l
        a: LRANGE l 0 -1
        b: LPOP l
        a: EXISTS l
        b: SORT nothing STORE l
        b: RPUSH l 2 1
        a: EXISTS s
        b: SORT l STORE s
        a: MGET y z
        b: GETDEL z | GETEX y | GETEX y PX 100000
        a: GET y
        b: UNLINK y
    """,
    "another database": """
        a: CLIENT TRACKING on
        a: GET x
        b: SELECT 2 | SET x 1
        a: GET x
        b: SELECT 0 | SET x 1
    """,
    "time": """
        a: CLIENT TRACKING on
        c: CLIENT TRACKING on BCAST
        a: SET x 1 PX 500 | GET x
        wait 1.5
        b: GET x
    """,
    "time, seen by a reader": """
        b: DEBUG SET-ACTIVE-EXPIRE 0
        a: CLIENT TRACKING on
        c: CLIENT TRACKING on BCAST
        a: SET x 1 PX 500 | GET x
        wait 0.6
        a: GET x
        b: DEBUG SET-ACTIVE-EXPIRE 1
    """,
    "pops that waited": """
        a: CLIENT TRACKING on
        c: CLIENT TRACKING on BCAST
        a: LRANGE l 0 -1
        p> BLPOP l 0
        begun p
        c: RPUSH l 1
        p<
        a: LRANGE l 0 -1
        p> BLMOVE l m LEFT RIGHT 0
        begun p
        b: RPUSH l 1 2
        p<
    """,
    "silence and pushes": """
        a: CLIENT TRACKING on
        a: GET x
        a> CLIENT REPLY OFF
        a> STRLEN y
        begun a
        b: SET x 1 | SET y 1
        a: CLIENT REPLY ON
        b: SET x 2
    """,
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("both")
    ours = folder / "ours.sock"
    with redis_server(folder) as theirs, running("--kv-unix-socket", str(ours)):
        yield ours, theirs


@contextlib.contextmanager
def casts(servers: tuple[Path, Path]) -> Iterator[list[Cast]]:
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(contextlib.closing(Cast(path))) for path in servers]
        for cast in both:
            cast.play(["z: FLUSHALL"])
        yield both


def compare(ours: dict[str, list[Any]], theirs: dict[str, list[Any]]) -> None:
    assert ours.keys() == theirs.keys()
    for name, heard in theirs.items():
        assert ours[name] == heard, name


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_gives_the_same_replies_and_pushes(servers: tuple[Path, Path], name: str):
    with casts(servers) as (ours, theirs):
        compare(ours.play(SCRIPTS[name]), theirs.play(SCRIPTS[name]))


KEYS = [*WORDS["K"], *WORDS["H"], *WORDS["E"], "a", "b", ""]
# Redis stores PFCOUNT's result in the value, and does not report a SETBIT that changes nothing.
APART = ("PFCOUNT", "SETBIT", "SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY")


class Reader:
    """Reads every key, and collects the invalidations that another client's command causes."""

    def __init__(self, path: Path) -> None:
        self.reader, self.writer = Peer(path, 3), Peer(path, 3)
        self.writer.run("FLUSHALL")
        self.reader.run("CLIENT", "TRACKING", "on")

    def keys_changed_by(self, argv: list[bytes]) -> list[bytes]:
        self.reader.run("EXISTS", *KEYS)
        self.writer.run(*argv)
        self.reader.send("PING")
        changed = []
        while (push := self.reader.read())[0] == ">":
            changed.append(push[1][1][1][0][1])
        return sorted(changed)

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_commands_change_the_same_keys(servers: tuple[Path, Path], seed: int):
    """Commands of every type, valid and invalid: a key is invalidated exactly when Redis invalidates it."""
    chance = random.Random(seed)
    templates = [template for template in TEMPLATES if template.split()[0] not in APART]
    done = []
    with contextlib.ExitStack() as stack:
        ours, theirs = (stack.enter_context(contextlib.closing(Reader(path))) for path in servers)
        for _ in range(1500):
            argv = expand(chance.choice(templates), chance.randrange(2**32))
            done.append(b" ".join(argv))
            assert ours.keys_changed_by(argv) == theirs.keys_changed_by(argv), done[-20:]
