"""Word for word as redis-server: replies to commands that are wrong in one way or another, and to some that
are right, one after the other on one connection to each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kv.redis_peer import MISSING, Peer, redis_server
from support.kv.kv_store import StartStore

LINES = """
SET k v
SET k v EX 0
SET k v EX abc
SET k v PX -5
SET k v EX 10 PX 10
SET k v NX XX
SET k v KEEPTTL EX 10
SET k v GET
SET n 10
SET k v NX GET
GETEX k EX 0
GETEX k PERSIST EX 1
GETDEL k
GETSET k w
APPEND k abc
SETRANGE k -1 x
SETRANGE k 536870912 x
GETRANGE k 0 -1
INCRBY k 1
INCRBY n 9223372036854775807
INCRBYFLOAT n abc
INCRBYFLOAT n 3.0e3
DECRBY n -9223372036854775808
MSET a
MSETNX a 1 b 2
MSETNX a 1 c 2
EXPIRE n abc
EXPIRE n 100 NX
EXPIRE n 100 NX XX
EXPIRE n 50 GT
EXPIRE n 100 ZZ
TTL nokey
PERSIST n
OBJECT REFCOUNT n
OBJECT FREQ n
OBJECT
OBJECT NOPE n
TYPE n
RENAME nokey b
RENAMENX n a
COPY n n
COPY n m DB 99
COPY n m REPLACE
MOVE n 0
MOVE n 99
SORT n
RPUSH l 3 1 2
SORT l
SORT l DESC LIMIT 0 2
SORT l BY nosort GET # GET w_*
SORT l ALPHA STORE l2
SORT_RO l STORE x
LRANGE l2 0 -1
LPUSH n x
LINSERT l BEFORE 1 z
LINSERT l NEAR 1 z
LSET l 99 x
LSET nokey 0 x
LPOS l z RANK 0
LPOS l z COUNT -1
LMPOP 0 l LEFT
LMPOP 1 l MIDDLE
LMPOP 1 l LEFT COUNT 0
LMPOP 1 l LEFT COUNT 2
BLPOP l -1
BLPOP l abc
BLMPOP 0.01 1 nolist LEFT
LMOVE l l2 LEFT UP
HSET h f
HSET h f 1 g 2
HINCRBY h f abc
HINCRBYFLOAT h g 0.5
HRANDFIELD h 1 WITHVALUES X
HRANDFIELD h abc
HGETALL n
HSCAN h 0 COUNT 0
HSCAN h abc
SADD s a b c
SMISMEMBER s a z
SINTERCARD 0 s
SINTERCARD 2 s
SINTERCARD 1 s LIMIT -1
SPOP s -1
SRANDMEMBER s abc
SSCAN s 0 MATCH x COUNT
ZADD z 1 a 2 b 3 c
ZADD z NX XX 1 a
ZADD z GT LT 1 a
ZADD z INCR 1 a 2 b
ZADD z abc a
ZADD z 1
ZADD z CH 5 a
ZRANGE z 0 -1 WITHSCORES
ZRANGE z (1 5 BYSCORE LIMIT 0 1
ZRANGE z 0 -1 LIMIT 0 1
ZRANGE z [a [c BYLEX REV
ZRANGE z a c BYLEX
ZRANGEBYSCORE z a b
ZRANGESTORE z2 z 0 -1
ZUNION 0 z
ZUNION 2 z
ZUNION 1 z WEIGHTS a
ZUNION 1 z AGGREGATE AVG
ZUNIONSTORE z3 2 z z2 WEIGHTS 2 3 AGGREGATE MAX
ZINTERCARD 1 z LIMIT 1
ZMPOP 1 z MIN COUNT 1
ZMPOP 1 z UP
BZPOPMIN z 0
ZRANDMEMBER z 1 WITHSCORES X
ZLEXCOUNT z - +
ZLEXCOUNT z x y
ZINCRBY z nan a
ZPOPMIN z -1
SETBIT b -1 1
SETBIT b 1 2
SETBIT b 7 1
GETBIT b abc
BITCOUNT b 0
BITCOUNT b 0 -1 BIT
BITCOUNT b 0 -1 NIBBLE
BITPOS b 2
BITPOS b 1
BITOP NOT d a b
BITOP NAND d a b
BITFIELD bf SET u8 0 255 INCRBY u8 0 1 OVERFLOW FAIL INCRBY u8 0 250
BITFIELD bf GET u64 0
BITFIELD_RO bf SET u8 0 1
PFADD hll a b c
PFCOUNT hll
PFADD s x
PFMERGE hll2 hll
PFCOUNT hll2 n
GEOADD geo 181 1 x
GEOADD geo 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
GEODIST geo Palermo Catania km
GEODIST geo Palermo Catania feet
GEOHASH geo Palermo nobody
GEOPOS geo Palermo nobody
GEOSEARCH geo FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST
GEOSEARCH geo BYRADIUS 200 km
GEORADIUS geo 15 37 200 km WITHDIST
SCAN abc
SCAN 0 COUNT abc
KEYS nomatch*
EXISTS n n nokey
TOUCH n nokey
UNLINK nokey
DUMP nokey
RESTORE x 0 garbage
RESTORE x -1 garbage
RANDOMKEY x
SELECT 99
SELECT abc
SWAPDB 0 99
SWAPDB a 1
ECHO
ECHO hi
PING a b
PING hi
AUTH x
AUTH nobody x
HELLO 4
HELLO 2 AUTH x
HELLO abc
CLIENT NOPE
CLIENT GETNAME
CLIENT SETNAME a-b
CLIENT ID x
CLIENT REPLY MAYBE
CLIENT KILL 1.2.3.4:5
CLIENT KILL ID abc
CLIENT KILL TYPE nope
CLIENT KILL ID 99999
CLIENT NO-EVICT maybe
CLIENT NO-EVICT on
CLIENT NO-EVICT off
CLIENT UNBLOCK 12345
CLIENT UNBLOCK abc
CLIENT UNBLOCK 1 MAYBE
CLIENT GETREDIR
CONFIG GET
CONFIG GET nosuch
CONFIG GET maxmemory-policy
CONFIG SET nosuch 1
CONFIG SET maxmemory abc
CONFIG SET maxmemory 100mb
CONFIG GET maxmemory
CONFIG SET maxmemory 0 maxmemory 1
CONFIG SET maxmemory 0
CONFIG SET timeout -1
CONFIG SET appendfsync sometimes
CONFIG SET databases 3
CONFIG RESETSTAT
CONFIG NOPE
LATENCY NOPE
LATENCY LATEST
LATENCY HISTORY nope
LATENCY RESET
LATENCY GRAPH nope
LATENCY DOCTOR x
SLOWLOG GET abc
SLOWLOG GET -2
SLOWLOG GET 0
SLOWLOG LEN x
SLOWLOG RESET
MEMORY USAGE nokey
MEMORY USAGE n SAMPLES -1
MEMORY USAGE n NOPE 1
MEMORY NOPE
ACL WHOAMI
ACL CAT nope
ACL SETUSER bob on >pw ~k* +get
ACL SETUSER bob nope
ACL SETUSER bob +nosuchcommand
ACL SETUSER bob +@nosuchcat
ACL SETUSER bob >
ACL SETUSER bob #zz
ACL DRYRUN nobody GET x
ACL DELUSER bob default
ACL DELUSER bob
ACL LOG abc
ACL LOG RESET
ACL GENPASS 0
ACL GENPASS abc
ACL NOPE
COMMAND COUNT x
COMMAND GETKEYS SET k v
COMMAND GETKEYS NOPE a
COMMAND GETKEYS ZUNION 2 a b
COMMAND GETKEYSANDFLAGS MSET a 1 b 2
COMMAND NOPE
PUBSUB NUMSUB a b
PUBSUB NUMPAT
PUBSUB CHANNELS
PUBSUB SHARDNUMSUB a
PUBSUB NOPE
PUBLISH a b
SPUBLISH a b
EXEC
DISCARD
MULTI
MULTI
WATCH a
NOSUCH
EXEC
MULTI
SET tx 1
INCR s
GET tx
EXEC
UNWATCH
WAIT 0 0
WAIT abc 0
WAIT 0 -1
FLUSHDB NOPE
FLUSHDB SYNC
DBSIZE x
TIME x
REPLICAOF a
RESET x
SUBSCRIBE
SET
get
NOSUCH a b c
COMMAND NOPE
"""


def test_replies_and_errors_are_those_of_redis_server(start: StartStore, tmp_path: Path):
    if shutil.which("redis-server") is None:
        pytest.skip(MISSING)
    start("--kv-unix-socket", str(tmp_path / "ours.sock"))
    with redis_server(tmp_path) as theirs:
        ours, original = Peer(tmp_path / "ours.sock", 2), Peer(theirs, 2)
        differences = {}
        for line in LINES.strip().splitlines():
            answers = ours.run(*line.split()), original.run(*line.split())
            if answers[0] != answers[1]:
                differences[line] = answers
        ours.close()
        original.close()
    assert not differences
