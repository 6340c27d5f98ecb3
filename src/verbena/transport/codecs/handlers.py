"""Handlers whose request has a decoded payload, and whose result is encoded."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from verbena.transport.codecs.codec import Codec, method_name

if TYPE_CHECKING:
    from verbena.transport.session import Request

_Handler = Callable[["Request"], Any]


def encoding(handlers: Mapping[str, _Handler], codec: Codec | None) -> dict[str, _Handler]:
    """Returns the handlers for a session with this codec, which has other names for them."""
    if codec is None:
        return dict(handlers)
    return {method_name(name, codec): _wrapped(name, handler, codec) for name, handler in handlers.items()}


def _wrapped(name: str, handler: _Handler, codec: Codec) -> _Handler:
    def decode(request: Request) -> Request:
        request.method, request.payload = name, codec.decode(request.payload)
        return request

    async def finish(result: Awaitable[Any]) -> Any:
        return codec.encode(await result)

    def handle(request: Request) -> Any:
        result = handler(decode(request))
        return finish(result) if inspect.isawaitable(result) else codec.encode(result)

    async def handle_async(request: Request) -> Any:  # a cancelled one has not called the handler yet
        return codec.encode(await handler(decode(request)))

    return handle_async if inspect.iscoroutinefunction(handler) else handle
