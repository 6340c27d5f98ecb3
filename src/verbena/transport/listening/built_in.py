"""Methods that every listener serves in addition to the program's handlers."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from verbena.errors import setup_error
from verbena.transport.blocking.handlers import InThread
from verbena.transport.codecs.codec import OWN_PREFIX
from verbena.transport.failover.drill import MAX_REST_S, drill_for
from verbena.transport.observe.status import MAX_SESSIONS, status
from verbena.transport.session import Handler, Request

if TYPE_CHECKING:
    from verbena.transport.node import Node

MAX_REQUEST_BYTES = 4096

Answer = dict[str, Any]
BuiltIn = Callable[["Node", Request, Mapping[str, Any]], Answer | Awaitable[Answer]]


def _status(node: Node, request: Request, arguments: Mapping[str, Any]) -> Answer:
    max_sessions = arguments.get("most", MAX_SESSIONS)
    if not isinstance(max_sessions, int) or not 0 <= max_sessions <= 100_000:
        raise ValueError("most is a number of sessions")
    return status(node.snapshot(), max_sessions=max_sessions, except_session=request.session.id)


async def _drill(node: Node, request: Request, arguments: Mapping[str, Any]) -> Answer:
    wire, rest_s, only = arguments.get("wire"), arguments.get("rest_s", 0), arguments.get("session")
    if not isinstance(rest_s, int | float) or not 0 <= rest_s <= MAX_REST_S:
        raise ValueError(f"rest_s is 0 to {MAX_REST_S}")
    if not isinstance(wire, str | None) or not isinstance(only, str | None):
        raise ValueError("wire and session are names")
    drilled = await drill_for(node, request.session, wire=wire, rest_s=float(rest_s), only=only)
    return {"node": node.name, "sessions": [one.as_json() for one in drilled]}


# All built-in methods. The arguments and the reply are JSON objects; an empty payload means no arguments.
BUILT_IN: Mapping[str, BuiltIn] = {"verbena.status": _status, "verbena.drill": _drill}


def with_built_ins(node: Node, handlers: Mapping[str, Handler | InThread]) -> dict[str, Handler | InThread]:
    """Returns the program's handlers and the built-in ones. invalid_argument if a program's handler has a
    reserved name."""
    for name in handlers:
        if name.startswith(OWN_PREFIX):
            detail = f"{name!r}: names that begin with {OWN_PREFIX!r} are Verbena's own"
            raise setup_error("invalid_argument", operation="listen", detail=detail)
    return {**handlers, **{name: _handler(node, answer) for name, answer in BUILT_IN.items()}}


def _handler(node: Node, answer: BuiltIn) -> Handler:
    async def handle(request: Request) -> bytes:
        if why := node.refuses_administration(request.session):
            raise PermissionError(why)
        if len(request.payload) > MAX_REQUEST_BYTES:
            raise ValueError(f"the arguments have {MAX_REQUEST_BYTES} bytes at most")
        arguments = json.loads(request.payload) if request.payload else {}
        if not isinstance(arguments, dict):
            raise ValueError("the arguments are a JSON object")
        reply = answer(node, request, arguments)
        return json.dumps(reply if isinstance(reply, dict) else await reply).encode()

    return functools.wraps(answer)(handle)
