"""Random commands from templates. A single capital letter is a placeholder for a random argument: K key, H
key of a HyperLogLog, E key of coordinates, F field or member, V value, I integer, X number, R bound of a
score range, L bound of a lexicographical range, C cursor, P pattern, N number of keys that follow (usually
right), G degrees, O bit, T type of a bit field. [ ] is optional, + repeats up to three times, a|b is a
choice. Sometimes an argument is lost, doubled or replaced, to cover errors."""

from __future__ import annotations

import random

TEMPLATES = """
SET K V
DEL K
TYPE K
HSET K F V+
HSET K F V F V
HMSET K F V
HSETNX K F V
HGET K F
HMGET K F+
HGETALL K
HKEYS K
HVALS K
HLEN K
HEXISTS K F
HDEL K F+
HINCRBY K F I
HINCRBYFLOAT K F X
HSTRLEN K F
HRANDFIELD K [I] [WITHVALUES]
HSCAN K C [MATCH P] [COUNT 100|1000|0|x]
LPUSH K V+
RPUSH K V+
RPUSH K V V V
LPUSHX K V+
RPUSHX K V
LPOP K [I]
RPOP K [I]
LLEN K
LRANGE K I I
LINDEX K I
LSET K I V
LINSERT K BEFORE|AFTER V V
LREM K I V
LTRIM K I I
LPOS K V [RANK I] [COUNT I] [MAXLEN I]
LMOVE K K LEFT|RIGHT LEFT|RIGHT
RPOPLPUSH K K
LMPOP N LEFT|RIGHT [COUNT I]
BLPOP K+ 0.001
BRPOP K 0.001
BLMOVE K K LEFT|RIGHT LEFT|RIGHT 0.001
BRPOPLPUSH K K 0.001
BLMPOP 0.001 N LEFT|RIGHT [COUNT I]
SADD K F+
SADD K I+
SADD K F F F
SREM K F+
SMEMBERS K
SISMEMBER K F
SMISMEMBER K F+
SCARD K
SPOP K [I]
SRANDMEMBER K [I]
SMOVE K K F
SINTER K+
SINTERCARD N [LIMIT I]
SINTERSTORE K K+
SUNION K+
SUNIONSTORE K K+
SDIFF K+
SDIFFSTORE K K+
SSCAN K C [MATCH P] [COUNT 100|1000|0|x]
ZADD K [NX|XX] [GT|LT] [CH] [INCR] X F
ZADD K [NX|XX] [GT|LT] [CH] X F X F
ZADD K X F X F X F
ZADD K 1 F 1 F 1 F
ZINCRBY K X F
ZREM K F+
ZCARD K
ZSCORE K F
ZMSCORE K F+
ZRANK K F
ZREVRANK K F
ZRANDMEMBER K [I] [WITHSCORES]
ZSCAN K C [MATCH P] [COUNT 100|1000|0|x]
ZRANGE K I I [REV] [WITHSCORES] [LIMIT I I]
ZRANGE K R R BYSCORE [REV] [LIMIT I I] [WITHSCORES]
ZRANGE K L L BYLEX [REV] [LIMIT I I] [WITHSCORES]
ZRANGESTORE K K I I [REV] [BYSCORE] [LIMIT I I]
ZRANGESTORE K K R R BYSCORE [REV] [LIMIT I I]
ZREVRANGE K I I [WITHSCORES]
ZRANGEBYSCORE K R R [WITHSCORES] [LIMIT I I]
ZREVRANGEBYSCORE K R R [WITHSCORES] [LIMIT I I]
ZRANGEBYLEX K L L [LIMIT I I]
ZREVRANGEBYLEX K L L [LIMIT I I]
ZCOUNT K R R
ZLEXCOUNT K L L
ZREMRANGEBYRANK K I I
ZREMRANGEBYSCORE K R R
ZREMRANGEBYLEX K L L
ZUNION N [WEIGHTS X X] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]
ZINTER N [WEIGHTS X X] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]
ZDIFF N [WITHSCORES]
ZINTERCARD N [LIMIT I]
ZUNIONSTORE K N [WEIGHTS X X] [AGGREGATE SUM|MIN|MAX]
ZINTERSTORE K N [WEIGHTS X] [AGGREGATE SUM|MIN|MAX]
ZDIFFSTORE K N
ZPOPMIN K [I]
ZPOPMAX K [I]
ZMPOP N MIN|MAX [COUNT I]
BZPOPMIN K+ 0.001
BZPOPMAX K 0.001
BZMPOP 0.001 N MIN|MAX [COUNT I]
SETBIT K O 0|1
GETBIT K O
BITCOUNT K [I I] [BIT|BYTE]
BITCOUNT K I I BIT|BYTE
BITPOS K 0|1 [I] [I] [BIT|BYTE]
BITPOS K 0|1 I I BIT|BYTE
BITOP AND|OR|XOR K K+
BITOP NOT K K
BITFIELD K [OVERFLOW WRAP|SAT|FAIL] [SET T O I] [INCRBY T O I] [GET T O]
BITFIELD K OVERFLOW WRAP|SAT|FAIL INCRBY T O I INCRBY T O I
BITFIELD_RO K GET T O [GET T O] [SET T O I]
GET K
PEXPIREAT K 4000000000000
PEXPIRETIME K
PFADD H V+
PFADD H F+
PFCOUNT H+
PFMERGE H H+
PFADD K V
LCS K K [LEN] [IDX] [MINMATCHLEN I] [WITHMATCHLEN]
SUBSTR K I I
KEYS P
SCAN C [MATCH P] [COUNT 1000] [TYPE string|hash|zset|x]
RENAME K K
RENAMENX K K
COPY K K [DB 1|0|99|x] [REPLACE]
COPY K K [REPLACE]
MOVE K 1|0|99|x
RANDOMKEY
SORT K [BY V] [GET # GET k*] [ASC|DESC] [ALPHA] [STORE K]
SORT K [LIMIT I I] [ALPHA] [DESC]
SORT K BY k*|w_*|k*->a|k1->* [ALPHA] [DESC] [GET *->a] [GET k*]
SORT_RO K [ALPHA] [DESC] [STORE K]
OBJECT ENCODING nosuchkey
OBJECT REFCOUNT nosuchkey
OBJECT FREQ K
OBJECT IDLETIME nosuchkey
OBJECT HELP
DUMP nosuchkey
GEOADD K [NX|XX] [CH] G G F
GEOADD E [NX|XX] [CH] G G F
GEOADD E G G F G G F
GEODIST E F F [M|KM|FT|MI|x]
GEOHASH E F+
GEOSEARCH E FROMLONLAT G G BYRADIUS G M|KM|FT|MI [ASC] [WITHDIST] [WITHHASH]
GEOSEARCH E FROMMEMBER F BYBOX 5000 7000 M|KM|MI [DESC] [COUNT I] [WITHDIST]
GEOSEARCHSTORE E E FROMLONLAT G G BYRADIUS 5000 KM [STOREDIST] [COUNT I] [ASC]
GEORADIUS E G G 5000 KM [WITHDIST] [ASC] [STORE|STOREDIST E]
GEORADIUSBYMEMBER E F 3000 KM [WITHDIST] [COUNT I]
GEORADIUS_RO E G G 5000 KM [STORE E]
GEORADIUSBYMEMBER_RO E F 5000 KM [WITHHASH]
RESTORE K I V [REPLACE] [ABSTTL] [IDLETIME I] [FREQ I]
""".strip().splitlines()

NATIVE = frozenset(("DUMP", "GET", "SET", "DEL", "TYPE", "PEXPIREAT", "PEXPIRETIME"))
WORDS = {
    "K": ["k1", "k2", "k3", "k4"],
    "E": ["g1", "g2"],
    "H": ["h1", "h2", "h3"],
    "F": ["a", "b", "c", "d", "aa", "1", "-5", ""],
    "V": ["a", "b", "1", "10", "-3", "3.5", "1e3", "foo", "", "9223372036854775807", "x" * 70],
    "I": ["0", "1", "2", "3", "-1", "-2", "-3", "5", "100", "-100", "9223372036854775807", "01", "x"],
    "X": ["0", "1", "2", "-1", "1.5", "0.1", "3.0", "inf", "-inf", "1e20", "-0.0", "1e-7", "0x1", "nan", "x"],
    "R": ["-inf", "+inf", "0", "1", "(1", "2", "(2", "1.5", "(", "", " 1", "(inf", "(-inf", "x", "nan"],
    "L": ["-", "+", "[a", "(a", "[b", "(c", "[", "(", "[aa", "a", ""],
    "C": ["0", "0", "0", "abc"],
    "P": ["*", "a*", "?", "[ab]", "[^a]", "*a*", "\\a", "[", "[a-c]*", "k*", "[]", "[c-a]"],
    "O": ["0", "1", "7", "8", "13", "100", "#1", "#2", "-1", "x", "4294967296"],
    "T": ["u8", "i8", "u3", "i64", "u63", "u64", "i5", "i16", "x", "i0", "u1"],
    "G": ["13.361389", "38.115556", "15.087269", "37.502669", "0", "-180", "181", "86", "x", "2.5", "48.8"],
}  # fmt: skip


TIMEOUT = "0.001"  # of blocking commands


def expand(template: str, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    words: list[str] = []
    tokens = template.split()
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.startswith("["):
            end = next(i for i in range(position, len(tokens)) if tokens[i].endswith("]"))
            group = [token.strip("[]") for token in tokens[position : end + 1]]
            if chance.random() < 0.4:
                for inner in group:
                    words += _word(inner, chance)
            position = end + 1
            continue
        words += _word(token, chance)
        position += 1
    if chance.random() < 0.07 and len(words) > 1 and words[0] not in NATIVE:
        place = chance.randrange(1, len(words))
        match chance.randrange(3):
            case 0:
                del words[place]
            case 1:
                words.insert(place, words[place])
            case _:
                other = chance.choice(["", "abc", "-1", "0", "1.5", "k1"])
                # A blocking command with a timeout of 0 waits for ever, as it should.
                words[place] = "abc" if (words[place], other) == (TIMEOUT, "0") else other
    return [word.encode() for word in words]


def _word(token: str, chance: random.Random) -> list[str]:
    if token == "N":
        keys = [chance.choice(WORDS["K"]) for _ in range(chance.randint(1, 3))]
        count = len(keys) if chance.random() < 0.95 else chance.choice([0, -1, 5, 1])
        return [str(count), *keys]
    if "|" in token:
        token = chance.choice(token.split("|"))
        return [token.lower() if chance.random() < 0.2 else token]
    times = chance.randint(1, 3) if token.endswith("+") else 1
    token = token.rstrip("+")
    if token not in WORDS:
        return [token]
    return [chance.choice(WORDS[token]) for _ in range(times)]
