"""A local Dask cluster whose scheduler, workers and client communicate through Verbena sessions."""

import numpy
from distributed import Client, LocalCluster


def wire(dask_worker):
    return dask_worker.batched_stream.comm.extra_info["wire"]


if __name__ == "__main__":
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(protocol="verbena://", **options) as cluster, Client(cluster) as client:
        print("scheduler at", client.scheduler.address)
        print("workers communicate over", *set(client.run(wire).values()))

        here, there = client.scheduler_info()["workers"]
        parts = [client.submit(numpy.full, 1_000_000, 1.5, workers=[worker]) for worker in (here, there)]
        total = client.submit(lambda a, b: float((a + b).sum()), *parts)  # one part moves to the other worker
        print("sum of both parts", total.result())
