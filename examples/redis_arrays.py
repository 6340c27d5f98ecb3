"""Arrays as values of a store, through redis-py over a session.  python redis_arrays.py [SESSIONS_ADDRESS]"""

import sys

import numpy
import redis

from verbena import kv

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7471"  # of `verbena serve`

client = redis.Redis(connection_pool=kv.redis_pool(address))
rows = numpy.arange(1_000_000, dtype="f4").reshape(1000, 1000)
client.mset({f"row:{number}": row.tobytes() for number, row in enumerate(rows)})

found = client.mget("row:7", "row:42", "row:999")
copy = numpy.stack([numpy.frombuffer(value, dtype="f4") for value in found])
print(copy.shape, "equal" if (copy == rows[[7, 42, 999]]).all() else "DIFFERENT")

client.set("matrix", rows.tobytes())  # 4 MB in one value
print("sum", numpy.frombuffer(client.get("matrix"), dtype="f4").sum(dtype="f8"))
