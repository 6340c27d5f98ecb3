"""One process publishes a table of embeddings; another reads rows and writes one back, in place."""

import multiprocessing

import numpy

import verbena


def look_up(address):
    with verbena.sync.connect(address) as session:
        table = session.region("embeddings")
        rows = numpy.stack([session.pull(table[n]) for n in (7, 99, 4711)])
        print("rows", rows.shape, "begin with", rows[:, 0].tolist(), "over", session.wire)
        session.write(table[7], rows[0] + 1)  # the owner runs no code for it


if __name__ == "__main__":
    table = numpy.arange(100_000, dtype="f4")[:, None].repeat(256, axis=1)
    with verbena.sync.listen("127.0.0.1:0") as server:
        server.publish("embeddings", table, access=verbena.Access.ALL)
        process = multiprocessing.Process(target=look_up, args=[server.address])
        process.start()
        process.join()
    print("row 7 begins with", float(table[7, 0]), "now")
