"""One process publishes a table of embeddings; another reads rows and writes one back, in place."""

from concurrent.futures import ProcessPoolExecutor

import numpy

import verbena
from verbena.verbs import Access


def look_up(address):
    with verbena.sync.connect(address) as session:
        table = session.region("embeddings")
        rows = numpy.stack([session.pull(table[n]) for n in (7, 99, 4711)])
        print("rows", rows.shape, "begin with", rows[:, 0].tolist(), "over", session.wire)
        session.write(table[7], rows[0] + 1)  # the owner runs no code for it


if __name__ == "__main__":
    table = numpy.arange(100_000, dtype="f4")[:, None].repeat(256, axis=1)
    with verbena.sync.listen("127.0.0.1:0") as server:
        server.publish("embeddings", table, access=Access.ALL)
        with ProcessPoolExecutor(1) as process:
            process.submit(look_up, server.address).result()
    print("row 7 begins with", float(table[7, 0]), "now")
