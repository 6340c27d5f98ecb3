"""The exception classes. A class says what the caller can do; `code` says what happened. A class
for which Python has an exception inherits that one too, so that `except ConnectionError` catches it."""

from __future__ import annotations

import errno as errno_names
import os
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verbena._native import WcStatus


class VerbenaError(Exception):
    """The base class: what happened, in which operation with which peer, the causes and the remedy."""

    errno: int | None
    strerror: str | None  # only of classes that are also an OSError

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
        if errno and issubclass(type(self), OSError):
            self.strerror = os.strerror(errno)

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
        # OSError keeps errno and strerror outside __dict__, so they would be lost between processes.
        strerror = {"strerror": self.strerror} if issubclass(type(self), OSError) else {}
        return type(self), (self.what,), {**self.__dict__, "errno": self.errno, **strerror}


class AddressError(VerbenaError, OSError):
    """The address cannot be resolved, reached or bound: check it."""


class BrokenLinkError(VerbenaError, ConnectionError):
    """The connection has ended: reconnect, then repeat what was not acknowledged."""


class BusyError(VerbenaError):
    """A resource is used up: release some of it and retry."""


class QueueFullError(BusyError):
    """A queue is full: poll completions and post again."""


class ClosedError(VerbenaError):
    """The object, or its parent, was closed: open another."""


@dataclass(frozen=True)
class ConfigurationProblem:
    """One mistake in the configuration: place, key and message. `str()` adds the line with a caret."""

    message: str
    key: str = ""
    source: str = ""  # a file's path, a variable or a flag
    line: int | None = None
    column: int | None = None
    excerpt: str = ""  # the line of the file, without secrets
    width: int = 1  # the number of characters that the caret underlines

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
    """The number of terminal columns of a letter; 0 for a tab, which is copied."""
    return 0 if letter == "\t" else 2 if unicodedata.east_asian_width(letter) in "WF" else 1


class ConfigurationError(VerbenaError):
    """The configuration is wrong: correct everything that `problems` lists."""

    problems: tuple[ConfigurationProblem, ...] = ()

    def __str__(self) -> str:
        if not self.problems:
            return super().__str__()
        # The problems are certain, so they replace the list of likely causes.
        first, *_ = super().__str__().partition("\n")
        return "\n".join((first, *map(str, self.problems), f"remedy: {self.remedy}"))


class DeniedError(VerbenaError, PermissionError):
    """An access flag, key, protection domain or credential forbids it: obtain the permission."""


class ProtocolError(VerbenaError):
    """The peer broke the protocol: check which program it is and which version."""


class RegistrationError(VerbenaError):
    """The memory could not be registered: raise a limit or change the buffer."""


class RejectedError(VerbenaError):
    """The peer rejected the connection: `private_data` contains its reason."""

    private_data: bytes = b""


class RemoteError(VerbenaError):
    """The peer's handler failed: `detail` contains its message."""


class StateError(VerbenaError):
    """The object is in the wrong state for the request, or the request is invalid: correct the program."""


class TimedOutError(VerbenaError, TimeoutError):
    """A time limit passed: retry or wait longer."""


class UnavailableError(VerbenaError):
    """A provider, device or package is missing here: use another or install it."""


class UnsupportedError(VerbenaError):
    """The provider lacks the feature: check `capabilities` first."""


def _describe_errno(number: int | None) -> str:
    return f"{errno_names.errorcode.get(number, f'errno {number}')}: {os.strerror(number)}" if number else ""


# Tracebacks and pickles name the public module.
for _public in (ConfigurationProblem, VerbenaError, *VerbenaError.__subclasses__(), QueueFullError):
    _public.__module__ = "verbena.errors"
