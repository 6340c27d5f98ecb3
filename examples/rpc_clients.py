"""A service that takes and returns Python values, and 64 clients that call it at once."""

import asyncio

import verbena


def total(request):
    basket = request.payload
    return {"items": sum(basket.values()), "kinds": len(basket)}


async def client(address, number):
    async with verbena.connect(address, codec="msgpack") as session:
        return await session.call("total", {"apples": number, "pears": 2}, timeout_s=20)


async def main():
    async with verbena.listen("127.0.0.1:0", handlers={"total": total}, codec="msgpack") as server:
        replies = await asyncio.gather(*(client(server.address, number) for number in range(64)))
    print(len(replies), "replies, the last", replies[-1])


asyncio.run(main())
