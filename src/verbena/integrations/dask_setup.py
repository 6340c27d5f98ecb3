"""The configuration of Dask's comms."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from verbena.config import Config, load
from verbena.transport import Settings
from verbena.transport.configured import client_tls, server_tls, settings_from

# Dask detects dead workers by their comms and has its own recovery, so broken sessions must be reported soon.
_MAX_RESUME_S = 5.0
_MAX_RETRY_DELAY_MS = 100


@dataclass(frozen=True)
class Setup:
    """The configuration from verbena.toml and the environment, adapted for Dask."""

    config: Config
    settings: Settings

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        return client_tls(self.config)

    @property
    def server_tls(self) -> ssl.SSLContext | None:
        return server_tls(self.config)


def setup_for(connection_args: Mapping[str, Any]) -> Setup:
    """Loads the configuration. Raises RuntimeError if Dask passes an SSL context, or requires encryption and
    no TLS certificate is configured."""
    config = load()
    settings = settings_from(config)
    if connection_args.get("ssl_context") is not None:
        raise RuntimeError(
            "verbena:// does not use Dask's certificates: set them in verbena.toml, section [tls]"
        )
    wires = settings.wires
    if connection_args.get("require_encryption"):
        if settings.iwarp is None or settings.iwarp.tls is None:
            raise RuntimeError(
                "Dask requires encryption: set certificate, key and ca in verbena.toml, section [tls]"
            )
        wires = tuple(wire for wire in wires if wire != "ibv")  # RDMA devices do not encrypt
    settings = replace(
        settings,
        wires=wires,
        metrics_listen="",  # many processes cannot share one port
        resume_timeout_s=min(settings.resume_timeout_s, _MAX_RESUME_S),
        retry_delay_ms=min(settings.retry_delay_ms, _MAX_RETRY_DELAY_MS),
    )
    return Setup(config, settings)
