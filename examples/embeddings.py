"""One process holds a table of embeddings; another reads rows and writes them back one-sided, in place."""

import asyncio
import multiprocessing

import numpy

import verbena
from verbena.integrations.tensors import array_in, as_array

ROWS, WIDTH = 100_000, 256
ROW_BYTES = WIDTH * 4


def as_tensor(array):
    """A torch tensor on the same memory if torch is installed, else the array itself."""
    try:
        import torch
    except ImportError:
        return array
    return torch.from_dlpack(array)


async def look_up(address):
    async with await verbena.connect(address) as session:
        table = verbena.RemoteRegion.from_bytes(await session.call("table"))

        row = as_tensor(numpy.empty(WIDTH, dtype="f4"))
        wanted = table[7 * ROW_BYTES : 8 * ROW_BYTES]
        await session.get(wanted, as_array(row))  # directly into the tensor; the owner does nothing
        print(type(row).__name__, "row 7 begins with", float(row[0]), "over", session.wire)

        row += 1
        await session.put(as_array(row), wanted)  # directly from the tensor


def client(address):
    asyncio.run(look_up(address))


async def main():
    handlers = {"table": lambda request: region.remote.to_bytes()}
    async with await verbena.listen("127.0.0.1:0", handlers=handlers) as listener:
        region = listener.node.allocate(ROWS * ROW_BYTES)
        table = array_in(region, "f4", (ROWS, WIDTH))
        table[:] = numpy.arange(ROWS, dtype="f4")[:, None]
        process = multiprocessing.get_context("spawn").Process(target=client, args=(listener.address,))
        process.start()
        await asyncio.to_thread(process.join)
        print("row 7 begins with", float(table[7, 0]), "now")


if __name__ == "__main__":
    asyncio.run(main())
