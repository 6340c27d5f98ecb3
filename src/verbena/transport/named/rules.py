"""The rule of a publication: which principals may use it, and how."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection

from verbena.errors import setup_error
from verbena.transport.handshake.principal import Principal
from verbena.verbs import Access

# None: every session. Names as in principal.names. A function returns whether a principal may
# use the region, or the access that it has.
Rule = Collection[str] | Callable[[Principal], "Access | bool"] | None
Decide = Callable[[Principal], Access]

NO_ACCESS = Access(0)
_REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


def deciding(rule: Rule, access: Access) -> Decide:
    """Returns the function that decides the access of a principal. StateError for what is not a rule."""
    granted = access & _REMOTE
    if not granted:
        raise _invalid("access has none of the remote rights")
    if rule is None:
        return lambda principal: granted
    if callable(rule):
        if inspect.iscoroutinefunction(rule):
            raise _invalid("allow is an async function: pass a plain one")
        return lambda principal: _as_access(rule(principal), granted)
    if isinstance(rule, str) or not all(isinstance(name, str) for name in rule):
        raise _invalid('allow is a collection of names, such as {"secret"}, or a function')
    names = frozenset(rule)
    return lambda principal: NO_ACCESS if names.isdisjoint(principal.names) else granted


def _as_access(result: object, granted: Access) -> Access:
    if isinstance(result, Access):
        return result & _REMOTE
    if isinstance(result, bool):
        return granted if result else NO_ACCESS
    raise TypeError(f"allow returned {type(result).__name__}, not Access or bool")


def _invalid(detail: str) -> Exception:
    return setup_error("invalid_argument", operation="publish", detail=detail)
