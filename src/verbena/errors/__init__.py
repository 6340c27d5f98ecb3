"""The exceptions of Verbena, and what each error code means. Depends on _native only.

VerbenaError
├── AddressError         the address cannot be resolved, reached or bound, also an OSError: check it
├── BrokenLinkError      the connection has ended, also a ConnectionError: reconnect
├── BusyError            a resource is used up: release some of it and retry
│   └── QueueFullError   a queue is full: poll completions and post again
├── ClosedError          the object was closed: open another
├── ConfigurationError   a file, variable or flag is wrong: correct what `problems` lists
├── DeniedError          a flag, key, domain or credential forbids it, also a PermissionError: obtain the
│                        permission
├── ProtocolError        the peer broke the protocol: check its program and version
├── RegistrationError    memory could not be registered: raise a limit or change the buffer
├── RejectedError        the peer rejected the connection: read its `private_data`
├── RemoteError          the peer's handler failed: read `detail`
├── StateError           wrong state or invalid request: correct the program
├── TimedOutError        a time limit passed, also a TimeoutError: retry or wait longer
├── UnavailableError     a provider, device or package is missing here: use another or install it
└── UnsupportedError     the provider lacks the feature: check `capabilities` first

`EXPLANATIONS` is the one table of codes: class, what happened, causes, remedy, checks. The texts of
exceptions, `verbena explain`, docs/reference/errors.md and src/native/util/error_codes.h are made from it.
Build exceptions with `setup_error` and `completion_error`, which take class and texts from the table.
A failed completion leaves the queue pair in ERR, whatever the class: reconnect before the next request.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from verbena.errors.classes import (
    AddressError,
    BrokenLinkError,
    BusyError,
    ClosedError,
    ConfigurationError,
    ConfigurationProblem,
    DeniedError,
    ProtocolError,
    QueueFullError,
    RegistrationError,
    RejectedError,
    RemoteError,
    StateError,
    TimedOutError,
    UnavailableError,
    UnsupportedError,
    VerbenaError,
)
from verbena.errors.explanation import Explanation, unknown
from verbena.errors.table import EXPLANATIONS
from verbena.errors.values import values_here

if TYPE_CHECKING:
    from verbena._native import WcStatus

__all__ = [
    "EXPLANATIONS",
    "AddressError",
    "BrokenLinkError",
    "BusyError",
    "ClosedError",
    "ConfigurationError",
    "ConfigurationProblem",
    "DeniedError",
    "Explanation",
    "ProtocolError",
    "QueueFullError",
    "RegistrationError",
    "RejectedError",
    "RemoteError",
    "StateError",
    "TimedOutError",
    "UnavailableError",
    "UnsupportedError",
    "VerbenaError",
    "WcStatus",
    "completion_error",
    "configuration_error",
    "error_class",
    "explain",
    "from_native",
    "setup_error",
]

_SPELLINGS = {code.casefold(): code for code in EXPLANATIONS}


@functools.cache
def _wc_status() -> type[WcStatus]:
    """Imported at first use: a command that reports no error does not load native code."""
    from verbena._native import WcStatus

    return WcStatus


@functools.cache
def _status_names() -> dict[str, str]:
    """The name of each status by its number in decimal."""
    return {str(status.value): status.name for status in _wc_status()}


def __getattr__(name: str) -> type[WcStatus]:
    if name == "WcStatus":
        return _wc_status()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def explain(code_or_status: str | int) -> Explanation:
    """The row of a status or set-up code, with this machine's limits filled in.
    Takes a WcStatus, its number, or a name in any case, with or without IBV_WC_.
    An unknown code gets a row that says so."""
    code = _canonical(code_or_status)
    return (EXPLANATIONS.get(code) or unknown(code)).filled(values_here(code))


def error_class(code_or_status: str | int) -> type[VerbenaError]:
    """The class that a status or set-up code raises; VerbenaError for SUCCESS and for unknown codes."""
    row = EXPLANATIONS.get(_canonical(code_or_status))
    return (row and row.raises) or VerbenaError


def completion_error(
    status: int, *, operation: str, peer: str | None = None, detail: str | None = None
) -> VerbenaError:
    """Makes the exception for a failed completion; the caller raises it. SUCCESS raises ValueError."""
    if status == _wc_status().SUCCESS:
        raise ValueError("a completion with status SUCCESS is not an error")
    return setup_error(_canonical(status), operation=operation, peer=peer, detail=detail)


def setup_error(
    code: str,
    *,
    operation: str,
    peer: str | None = None,
    detail: str | None = None,
    errno: int | None = None,
    private_data: bytes = b"",
    **values: object,
) -> VerbenaError:
    """Makes the exception for a code; the caller raises it. An unknown code gives a plain VerbenaError.
    `values` replace this machine's values in the texts; those that the texts do not name join the detail."""
    code = _canonical(code)
    row = EXPLANATIONS.get(code) or unknown(code)
    explanation = row.filled({**values_here(code), **values})
    extra = ", ".join(f"{name}={value}" for name, value in values.items() if name not in row.fields)
    error = error_class(code)(
        explanation.what,
        operation=operation,
        peer=peer or None,
        status=_wc_status().__members__.get(code),
        code=code,
        causes=explanation.causes,
        remedy=explanation.remedy,
        detail=", ".join(filter(None, (detail, extra))),
        errno=errno or None,
    )
    if isinstance(error, RejectedError):
        error.private_data = private_data
    return error


def configuration_error(problems: Iterable[ConfigurationProblem]) -> ConfigurationError:
    """Makes the exception that reports all `problems` at once; the caller raises it."""
    found = tuple(problems)
    detail = f"{len(found)} mistake{'' if len(found) == 1 else 's'}"
    error = setup_error("bad_configuration", operation="", detail=detail)
    assert isinstance(error, ConfigurationError)
    error.problems = found
    return error


def from_native(code: str, operation: str, detail: str = "", errno: int = 0) -> VerbenaError:
    """Makes the exception for a C++ verbena::Error, where "" and 0 mean none."""
    return setup_error(code, operation=operation, detail=detail, errno=errno)


def _canonical(code_or_status: str | int) -> str:
    if isinstance(code_or_status, int):
        return _status_names().get(str(int(code_or_status)), f"status {int(code_or_status)}")
    name = code_or_status.strip()
    if name.isdecimal():
        return _status_names().get(name, name)
    return _SPELLINGS.get(name.casefold().removeprefix("ibv_wc_"), name)
