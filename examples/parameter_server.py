"""A parameter server: workers read the weights one-sided, and send gradients as arrays."""

import multiprocessing

import numpy

import verbena


def work(address):
    with verbena.sync.connect(address, codec="numpy") as session:
        remote = session.region("weights")  # the server runs no code for a pull of it
        for _ in range(20):
            session.call("push", 2 * (session.pull(remote) - 3))  # the gradient of (weights - 3)²


if __name__ == "__main__":
    handlers = {"push": lambda request: numpy.subtract(weights, 0.1 * request.payload, out=weights)}
    with verbena.sync.listen("127.0.0.1:0", handlers=handlers, codec="numpy") as server:
        server.publish("weights", weights := numpy.zeros((100, 10)))
        for _ in range(4):
            multiprocessing.Process(target=work, args=[server.address]).start()
        for worker in multiprocessing.active_children():
            worker.join()
    print("weights", weights.shape, "mean", round(weights.mean(), 2))
