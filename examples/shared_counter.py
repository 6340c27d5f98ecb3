"""Four processes increment one counter in the memory of another process, without a call."""

import multiprocessing

import numpy

import verbena


def count(address):
    with verbena.sync.connect(address) as session:
        hits = session.region("counters")[1]  # one element of the array
        for _ in range(1000):
            session.fetch_add(hits, 1)


if __name__ == "__main__":
    counters = numpy.zeros(8, dtype="i8")
    with verbena.sync.listen("127.0.0.1:0") as server:
        server.publish("counters", counters, access=verbena.Access.ALL)
        for _ in range(4):
            multiprocessing.Process(target=count, args=[server.address]).start()
        for worker in multiprocessing.active_children():
            worker.join()
    print("counters", counters.tolist())
