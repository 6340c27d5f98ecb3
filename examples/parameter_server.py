"""A parameter server: workers read the weights one-sided, and send gradients as arrays."""

from concurrent.futures import ProcessPoolExecutor

import numpy

import verbena


def work(address):
    with verbena.sync.connect(address, codec="numpy") as session:
        remote = session.region("weights")
        for _ in range(20):
            weights = session.pull(remote)  # the server runs no code for it
            session.call("push", 2 * (weights - 3))  # the gradient of (weights - 3)²


if __name__ == "__main__":
    weights = numpy.zeros((100, 10))
    handlers = {"push": lambda request: numpy.subtract(weights, 0.1 * request.payload, out=weights)}
    with verbena.sync.listen("127.0.0.1:0", handlers=handlers, codec="numpy") as server:
        server.publish("weights", weights)
        with ProcessPoolExecutor(4) as workers:
            list(workers.map(work, [server.address] * 4))
    print("weights", weights.shape, "mean", round(weights.mean(), 2))
