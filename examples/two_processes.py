"""The parent exposes five bytes; a child process reads and overwrites them one-sided."""

import multiprocessing

from verbena import verbs


def open_end():
    context = verbs.open_device("shm")
    domain = context.alloc_pd()
    return context, domain, domain.create_qp(send_cq=context.create_cq(depth=16))


def child(address, remote):
    context, domain, qp = open_end()
    with context:  # closing the context closes everything created from it
        context.connect_blocking(qp, address)
        local = domain.allocate(5)
        qp.sync.read(local, remote)
        print("child read", bytes(memoryview(local)))
        memoryview(local)[:] = b"world"
        qp.sync.write(local, remote)


if __name__ == "__main__":
    context, domain, qp = open_end()
    with context:
        region = domain.allocate(5)
        memoryview(region)[:] = b"hello"
        listener = context.listen("")
        arguments = (listener.address, region.remote)
        process = multiprocessing.get_context("spawn").Process(target=child, args=arguments)
        process.start()
        listener.accept_blocking(timeout_s=10).accept_blocking(qp)
        process.join()
        print("parent has", bytes(memoryview(region)))
