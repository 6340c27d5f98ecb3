"""The one tree of exceptions, by what the caller can do; why it happened is in the attributes.

VerbenaError
├── AddressError         cannot resolve, reach or listen: check the address
├── BrokenLinkError      the connection is gone: reconnect
├── BusyError            too much at once: release something and retry
│   └── QueueFullError   back-pressure: poll completions and post again
├── ClosedError          the object was closed: open another
├── ConfigurationError   a file, variable or flag is wrong: correct what `problems` lists
├── DeniedError          access, key, protection domain or credentials: ask for the right
├── ProtocolError        the peer sent nonsense: check what and which version it is
├── RegistrationError    memory could not be registered: raise a limit or change the buffer
├── RejectedError        the peer turned the connection down: read its `private_data`
├── RemoteError          the peer's handler failed: read what it says
├── StateError           wrong state or invalid request: correct the program
├── TimedOutError        too slow, also a TimeoutError: retry or wait longer
├── UnavailableError     provider or device is not here: use another
└── UnsupportedError     the provider lacks it: ask `capabilities` first

Build them with `setup_error` and `completion_error`, which take words and class from one table.
A failed completion leaves the queue pair in ERR, whatever the class: reconnect before the next request.
"""

from __future__ import annotations

import enum
import errno as errno_names
import os
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verbena._explanations import EXPLANATIONS, Explanation, unknown, values_here

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


class WcStatus(enum.IntEnum):
    """How a work request ended: libibverbs' ibv_wc_status, same names and numbers."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    LOC_RDD_VIOL_ERR = 14
    REM_INV_RD_REQ_ERR = 15
    REM_ABORT_ERR = 16
    INV_EECN_ERR = 17
    INV_EEC_STATE_ERR = 18
    FATAL_ERR = 19
    RESP_TIMEOUT_ERR = 20
    GENERAL_ERR = 21
    TM_ERR = 22
    TM_RNDV_INCOMPLETE = 23


class VerbenaError(Exception):
    """Any failure of Verbena: what happened, to which operation with which peer, why, and what to do."""

    errno: int | None

    def __init__(
        self,
        what: str,
        *,
        operation: str = "",
        peer: str | None = None,
        status: WcStatus | None = None,
        code: str = "",
        causes: tuple[str, ...] = (),
        remedy: str = "",
        detail: str = "",
        errno: int | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.operation = operation
        self.peer = peer
        self.status = status
        self.code = code
        self.causes = causes
        self.remedy = remedy
        self.detail = detail
        self.errno = errno

    @property
    def cause(self) -> str:
        """The possible causes in one line, the likeliest first."""
        return "; or ".join(self.causes)

    def __str__(self) -> str:
        where = " ".join(filter(None, (self.operation, f"(peer {self.peer})" if self.peer else "")))
        head = ": ".join(filter(None, (f"{where} failed" if where else "", self.what, self.detail)))
        marks = ", ".join(filter(None, (self.code, _describe_errno(self.errno))))
        lines = [f"{head} [{marks}]" if marks else head]
        lines += [f"{'   or' if index else 'cause'}: {cause}" for index, cause in enumerate(self.causes)]
        if self.remedy:
            lines.append(f"remedy: {self.remedy}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.what!r}, code={self.code!r}, operation={self.operation!r}, peer={self.peer!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError keeps errno outside __dict__, so a TimedOutError would lose it between processes.
        return type(self), (self.what,), {**self.__dict__, "errno": self.errno}


class AddressError(VerbenaError):
    """The address cannot be resolved, reached or listened on: check it."""


class BrokenLinkError(VerbenaError):
    """The connection is gone: reconnect, then repeat what was not acknowledged."""


class BusyError(VerbenaError):
    """Too much is open or under way: release something and retry."""


class QueueFullError(BusyError):
    """A queue is full, which is back-pressure: poll completions and post again."""


class ClosedError(VerbenaError):
    """The object, or its parent, was closed: open another."""


@dataclass(frozen=True)
class ConfigurationProblem:
    """One mistake: where it is, which key it concerns, what is wrong. `str()` shows the line with a caret."""

    message: str
    key: str = ""
    source: str = ""  # a file's path, a variable or a flag
    line: int | None = None
    column: int | None = None
    excerpt: str = ""  # the line as it stands, without secrets
    width: int = 1  # how many characters of it are meant

    @property
    def summary(self) -> str:
        """In one line: `verbena.toml:7: network.rdma.cq_size must be …`."""
        place = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(filter(None, (place, self.message)))

    def __str__(self) -> str:
        if not self.excerpt or self.line is None or self.column is None:
            return self.summary
        margin = f"{self.line:>5}"
        start, end = self.column - 1, self.column - 1 + self.width
        indent = "".join(" " * _places(letter) or letter for letter in self.excerpt[:start])
        carets = "^" * max(self.width, sum(map(_places, self.excerpt[start:end])))
        caret = f"{' ' * len(margin)} | {indent}{carets}"
        return f"{self.summary}\n{margin} | {self.excerpt}\n{caret}"


def _places(letter: str) -> int:
    """How many places of a terminal's line a letter takes; 0 for a tab, which is best left as it is."""
    return 0 if letter == "\t" else 2 if unicodedata.east_asian_width(letter) in "WF" else 1


class ConfigurationError(VerbenaError):
    """The configuration is wrong: `problems` lists all that is, for a person to correct."""

    problems: tuple[ConfigurationProblem, ...] = ()

    def __str__(self) -> str:
        if not self.problems:
            return super().__str__()
        # The problems stand where other errors have causes that are merely likely.
        first, *_ = super().__str__().partition("\n")
        return "\n".join((first, *map(str, self.problems), f"remedy: {self.remedy}"))


class DeniedError(VerbenaError):
    """Access flags, key, protection domain or credentials forbid it: ask for the right."""


class ProtocolError(VerbenaError):
    """The peer sent what the protocol does not allow: check what it is and which version."""


class RegistrationError(VerbenaError):
    """The memory could not be registered: raise a limit or change the buffer."""


class RejectedError(VerbenaError):
    """The peer turned the connection down: `private_data` is what it said."""

    private_data: bytes = b""


class RemoteError(VerbenaError):
    """The peer's handler failed: `detail` is what it said."""


class StateError(VerbenaError):
    """The object is in the wrong state for the request, or the request is invalid: correct the program."""


class TimedOutError(VerbenaError, TimeoutError):
    """It took too long: retry or wait longer."""


class UnavailableError(VerbenaError):
    """The provider or device is not here, for the reason given: use another."""


class UnsupportedError(VerbenaError):
    """The provider does not have it: ask `capabilities` first."""


_CLASSES: Mapping[str, type[VerbenaError]] = {
    "LOC_LEN_ERR": StateError,
    "LOC_QP_OP_ERR": StateError,
    "LOC_EEC_OP_ERR": UnsupportedError,
    "LOC_PROT_ERR": DeniedError,
    "WR_FLUSH_ERR": BrokenLinkError,
    "MW_BIND_ERR": DeniedError,
    "BAD_RESP_ERR": ProtocolError,
    "LOC_ACCESS_ERR": DeniedError,
    "REM_INV_REQ_ERR": StateError,
    "REM_ACCESS_ERR": DeniedError,
    "REM_OP_ERR": BrokenLinkError,
    "RETRY_EXC_ERR": BrokenLinkError,
    "RNR_RETRY_EXC_ERR": BrokenLinkError,
    "LOC_RDD_VIOL_ERR": UnsupportedError,
    "REM_INV_RD_REQ_ERR": UnsupportedError,
    "REM_ABORT_ERR": BrokenLinkError,
    "INV_EECN_ERR": UnsupportedError,
    "INV_EEC_STATE_ERR": UnsupportedError,
    "FATAL_ERR": UnavailableError,
    "RESP_TIMEOUT_ERR": TimedOutError,
    "GENERAL_ERR": BrokenLinkError,
    "TM_ERR": StateError,
    "TM_RNDV_INCOMPLETE": UnsupportedError,
    "memlock": RegistrationError,
    "huge_pages": RegistrationError,
    "fd_limit": BusyError,
    "no_device": UnavailableError,
    "port_down": UnavailableError,
    "no_gid": UnavailableError,
    "provider_missing": UnavailableError,
    "bad_configuration": ConfigurationError,
    "configuration_file": ConfigurationError,
    "address_in_use": AddressError,
    "unreachable": AddressError,
    "connect_timeout": TimedOutError,
    "rejected": RejectedError,
    "credentials": DeniedError,
    "tls_missing": UnavailableError,
    "tls_untrusted": DeniedError,
    "tls_revoked": DeniedError,
    "tls_wrong_host": DeniedError,
    "tls_plain_peer": DeniedError,
    "tls_required": DeniedError,
    "tls_refused": DeniedError,
    "bad_envelope": ProtocolError,
    "bad_checkpoint": ProtocolError,
    "bad_cluster_map": ProtocolError,
    "map_conflict": BusyError,
    "map_refused": StateError,
    "map_store": AddressError,
    "map_store_timeout": TimedOutError,
    "map_not_asked": TimedOutError,
    "lease_lost": StateError,
    "not_ready": StateError,
    "move_failed": RemoteError,
    "version_mismatch": ProtocolError,
    "peer_died": BrokenLinkError,
    "peer_refused": BrokenLinkError,
    "bad_message": ProtocolError,
    "not_permitted": DeniedError,
    "downgrade": DeniedError,
    "no_common_wire": UnavailableError,
    "session_unknown": BrokenLinkError,
    "drill": BrokenLinkError,
    "session_failed": BrokenLinkError,
    "pool_timeout": TimedOutError,
    "numpy_missing": UnavailableError,
    "registry_folder": UnavailableError,
    "registry_locked": BusyError,
    "registry_missing": UnavailableError,
    "registry_bucket": UnavailableError,
    "s3_missing": UnavailableError,
    "far_full": BusyError,
    "far_name_taken": StateError,
    "far_unknown": StateError,
    "log_failed": UnavailableError,
    "log_corrupt": StateError,
    "log_locked": BusyError,
    "no_memory": BusyError,
    "protocol_error": ProtocolError,
    "denied": DeniedError,
    "call_timeout": TimedOutError,
    "remote_failure": RemoteError,
    "no_such_method": UnsupportedError,
    "peer_busy": BusyError,
    "region_denied": DeniedError,
    "message_too_long": StateError,
    "damaged": ProtocolError,
    "peer_restarted": BrokenLinkError,
    "resume_timeout": BrokenLinkError,
    "stale_attempt": DeniedError,
    "tls_file": StateError,
    "tls_key_mismatch": StateError,
    "tls_expired": DeniedError,
    "tls_handshake": DeniedError,
    "closed": ClosedError,
    "bad_transition": StateError,
    "missing_attribute": StateError,
    "queue_full": QueueFullError,
    "cq_overrun": BrokenLinkError,
    "foreign_pd": DeniedError,
    "buffer_readonly": RegistrationError,
    "buffer_not_contiguous": RegistrationError,
    "out_of_range": StateError,
    "limit_exceeded": StateError,
    "invalid_argument": StateError,
    "unsupported_opcode": UnsupportedError,
    "unsupported_provider": UnsupportedError,
}

_SPELLINGS = {code.casefold(): code for code in EXPLANATIONS}
_SPELLINGS |= {str(status.value): status.name for status in WcStatus}


def explain(code_or_status: str | int) -> Explanation:
    """What a status or set-up code means here and now, with this machine's limits filled in.
    Takes a WcStatus, its number, or a name in any case, with or without IBV_WC_. Says so if it is unknown."""
    code = _canonical(code_or_status)
    return EXPLANATIONS.get(code, unknown(code)).filled(values_here(code))


def error_class(code_or_status: str | int) -> type[VerbenaError]:
    """The class that a status or set-up code raises; VerbenaError itself if the code is unknown."""
    return _CLASSES.get(_canonical(code_or_status), VerbenaError)


def completion_error(
    status: int, *, operation: str, peer: str | None = None, detail: str | None = None
) -> VerbenaError:
    """The error for a failed completion, for the caller to raise. SUCCESS is refused with ValueError."""
    if status == WcStatus.SUCCESS:
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
    """The error for a failure code, for the caller to raise; an unknown code gives a plain VerbenaError.
    `values` replace this machine's in the texts; those that the texts do not name join the detail."""
    code = _canonical(code)
    row = EXPLANATIONS.get(code, unknown(code))
    explanation = row.filled({**values_here(code), **values})
    extra = ", ".join(f"{name}={value}" for name, value in values.items() if name not in row.fields)
    error = error_class(code)(
        explanation.what,
        operation=operation,
        peer=peer or None,
        status=WcStatus.__members__.get(code),
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
    """The error that reports all `problems` at once, for the caller to raise."""
    found = tuple(problems)
    detail = f"{len(found)} mistake{'' if len(found) == 1 else 's'}"
    error = setup_error("bad_configuration", operation="", detail=detail)
    assert isinstance(error, ConfigurationError)
    error.problems = found
    return error


def from_native(code: str, operation: str, detail: str = "", errno: int = 0) -> VerbenaError:
    """The error for a C++ verbena::Error, field by field, where "" and 0 stand for none."""
    return setup_error(code, operation=operation, detail=detail, errno=errno)


def _canonical(code_or_status: str | int) -> str:
    if isinstance(code_or_status, int):
        return _SPELLINGS.get(str(int(code_or_status)), f"status {int(code_or_status)}")
    name = code_or_status.strip()
    return _SPELLINGS.get(name.casefold().removeprefix("ibv_wc_"), name)


def _describe_errno(number: int | None) -> str:
    return f"{errno_names.errorcode.get(number, f'errno {number}')}: {os.strerror(number)}" if number else ""
