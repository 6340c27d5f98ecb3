"""Builds a server from the configuration: parameters, users, sockets, and commands from other modules."""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import os
import socket
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from verbena._files import FILE_MODE
from verbena.config import Config, read_secret
from verbena.errors import setup_error
from verbena.kv.commands.replies import CommandError
from verbena.kv.server.parameters import Parameters
from verbena.kv.server.server import Server

if TYPE_CHECKING:
    from typing_extensions import Buffer

BACKLOG = 511


@dataclass
class Listening:
    """The addresses that a server listens on. `notes`: deviations from the configuration."""

    tcp: str = ""
    tls: str = ""
    unix: str = ""
    notes: list[str] = field(default_factory=list)

    def close(self) -> None:
        """Removes the Unix socket's file."""
        if self.unix:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.unix)
            self.unix = ""


def load_commands(name: str) -> None:
    """Imports a module, or runs a file, that declares commands. Errors as for any set-up."""
    try:
        if not name.endswith(".py") and os.sep not in name:
            importlib.import_module(name)
            return
        path = Path(name).resolve()
        spec = importlib.util.spec_from_file_location(f"verbena_commands_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        detail = f"{name}: {type(error).__name__}: {error}"
        raise setup_error("invalid_argument", operation="load commands", detail=detail) from error


def make_server(config: Config, *, memory: Callable[[int], Buffer] | None = None) -> Server:
    """Returns a server that does not listen yet. ConfigurationError or another VerbenaError: a setting is
    wrong."""
    for name in filter(None, (part.strip() for part in config.kv.commands.split(","))):
        load_commands(name)
    server = Server(databases=config.kv.databases, memory=memory)
    server.parameters.file = str(config.file.resolve()) if config.file is not None else ""
    _set_parameters(server.parameters, config)
    if config.kv.acl_file:
        server.acl.file = config.kv.acl_file
        if os.path.exists(server.acl.file):
            try:
                server.acl.load()
            except Exception as error:
                raise setup_error(
                    "invalid_argument", operation="read kv.acl_file", detail=str(error)
                ) from error
    server.clients.update_dispatch()
    return server


def _set_parameters(parameters: Parameters, config: Config) -> None:
    for row in parameters.rows.values():
        if not row.key:
            continue
        value = read_secret(config, row.key).reveal() if row.secret else config[row.key]
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        try:
            parsed = row.kind.parse(text)
        except (ValueError, CommandError) as error:
            raise setup_error("invalid_argument", operation=f"use {row.key}", detail=str(error)) from error
        if parsed != parameters.get(row.name):
            parameters.put(row.name, parsed)


def listen(server: Server, config: Config) -> Listening:
    """Opens the sockets that the configuration names."""
    kv, places = config.kv, Listening()
    try:
        if kv.tcp:
            explicit = config.source_of("kv.port").kind != "default"
            with _tcp_socket(kv.listen_address, kv.port, places, explicit=explicit) as tcp:
                server.engine.listen(tcp.fileno())
                places.tcp = _show(tcp)
                server.parameters.put("port", tcp.getsockname()[1])
        if kv.tls_port or config.source_of("kv.tls_port").kind != "default":
            with _tcp_socket(kv.listen_address, kv.tls_port, places, explicit=True) as tls:
                server.engine.listen(
                    tls.fileno(),
                    certificate=_certificate(config),
                    key=config.tls.key,
                    authority=config.tls.ca,
                    require_client_certificate=config.tls.require_client_certificate,
                )
                places.tls = _show(tls)
                server.parameters.put("tls-port", tls.getsockname()[1])
        if kv.unix_socket:
            with _unix_socket(kv.unix_socket) as unix:
                server.engine.listen(unix.fileno())
            places.unix = kv.unix_socket
    except BaseException:
        places.close()
        raise
    return places


def _certificate(config: Config) -> str:
    if not config.tls.certificate:
        detail = "kv.tls_port needs tls.certificate"
        raise setup_error("tls_file", operation="listen", detail=detail)
    return config.tls.certificate


def _tcp_socket(host: str, port: int, places: Listening, *, explicit: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (port,) if explicit else (port, 0):
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((host, number))
            opened.listen(BACKLOG)
            opened.setblocking(False)
        except OSError as error:
            opened.close()
            if error.errno == errno.EADDRINUSE and not explicit and number:
                continue
            raise setup_error(
                "address_in_use" if error.errno == errno.EADDRINUSE else "invalid_argument",
                operation="listen",
                detail=f"{host}:{number}",
                errno=error.errno,
            ) from error
        if number != port:
            places.notes.append(f"port {port} is taken: {opened.getsockname()[1]} is used instead")
        return opened
    raise AssertionError


def _unix_socket(path: str) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode) and not _answers(path):
            os.unlink(path)  # left by a server that crashed
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.bind(path)
        os.chmod(path, FILE_MODE)
        opened.listen(BACKLOG)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        raise setup_error("address_in_use", operation="listen", detail=path, errno=error.errno) from error
    return opened


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _show(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
