"""Converts the configuration into the settings, options and TLS contexts of nodes and listeners."""

from __future__ import annotations

import ssl

from verbena.config import Config, read_secret
from verbena.transport.address import HostPort
from verbena.transport.handshake.tls import client_context, server_context
from verbena.transport.observe import log
from verbena.transport.settings import Settings
from verbena.verbs import IbvOptions, IwarpOptions, QuicOptions, Tls

_FALLBACKS = {"tcp": ("iwarp",), "quic": ("quic",), "none": ()}


def settings_from(config: Config) -> Settings:
    """Returns the settings of a node. Raises ConfigurationError if the file of the secret cannot be used."""
    network, rdma, session = config.network, config.network.rdma, config.session
    hardware = ("ibv",) if network.rdma_enabled else ()
    return Settings(
        wires=("shm", *hardware, *_FALLBACKS[network.rdma_fallback]),
        devices={} if network.rdma_device == "auto" else {"ibv": network.rdma_device},
        node_name=session.node_name,
        data_port=session.data_port,
        send_queue_depth=rdma.send_queue_depth,
        recv_queue_depth=rdma.recv_queue_depth,
        cq_size=rdma.cq_size,
        max_mr_size=rdma.max_mr_size,
        inline_threshold=rdma.inline_threshold,
        max_send_sge=rdma.max_send_sge,
        max_recv_sge=rdma.max_recv_sge,
        recv_buffer_pool_size=rdma.recv_buffer_pool_size,
        recv_buffer_size=rdma.recv_buffer_size,
        huge_pages=rdma.huge_pages,
        numa=rdma.numa,
        pin_memory=rdma.pin_memory,
        poll_batch=rdma.poll_batch,
        busy_poll_us=rdma.busy_poll_us,
        adaptive_polling=rdma.adaptive_polling,
        max_send_size=config.shards.rdma.max_send_size,
        num_memory_regions=config.shards.rdma.num_memory_regions,
        max_message_size=session.max_message_size,
        max_connections=rdma.max_connections,
        connection_timeout_ms=rdma.connection_timeout_ms,
        connection_retries=rdma.connection_retries,
        retry_delay_ms=rdma.retry_delay_ms,
        resume_timeout_s=session.resume_timeout_s,
        heartbeat_interval_ms=session.heartbeat_interval_ms,
        peer_timeout_ms=session.peer_timeout_ms,
        upgrade_delay_ms=session.upgrade_delay_ms,
        upgrade_delay_max_ms=session.upgrade_delay_max_ms,
        allow_drill=session.allow_drill,
        metrics_listen=config.metrics.listen,
        metrics_host_names=names_in(config.metrics.host_names),
        capture_folder=session.capture_folder,
        capture_headers_only=session.capture_headers_only,
        allow_uids=tuple(int(uid) for uid in session.allow_uids.split(",") if uid),
        secret=read_secret(config).reveal().encode("utf-8", "surrogateescape"),
        iwarp=iwarp_options(config),
        quic=quic_options(config),
        ibv=ibv_options(config),
        gid_is_default=not config.was_set("network.rdma_gid_index"),
    )


def names_in(text: str) -> tuple[str, ...]:
    """Returns the names of a list separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name)


def ibv_options(config: Config) -> IbvOptions:
    """Returns the options of the ibv wire. A negative GID index in the configuration means automatic."""
    index = config.network.rdma_gid_index
    return IbvOptions(port=config.network.rdma_port, gid_index=None if index < 0 else index)


def iwarp_options(config: Config) -> IwarpOptions:
    """Returns the options of the iwarp wire: with TLS if certificate, key and authority are all set."""
    tls, iwarp = config.tls, config.iwarp
    crc: bool | None = iwarp.crc
    encrypted = None
    if tls.certificate and tls.key and tls.ca:
        encrypted = Tls(certificate=tls.certificate, key=tls.key, authority=tls.ca)
        crc = None  # TLS detects the corruption that CRC32C would
    return IwarpOptions(
        crc=crc,
        tls=encrypted,
        handshake_timeout_s=iwarp.handshake_timeout_ms / 1000,
        max_handshakes=iwarp.max_handshakes,
    )


def quic_options(config: Config) -> QuicOptions | None:
    """Returns the options of the quic wire, with the certificates of [tls]; None if no authority is set."""
    tls, iwarp = config.tls, config.iwarp
    if not tls.ca:
        return None
    files = Tls(
        certificate=tls.certificate,
        key=tls.key or tls.certificate,
        authority=tls.ca,
        require_peer_certificate=tls.require_client_certificate,
    )
    return QuicOptions(
        tls=files,
        revoked=tls.revoked or None,
        handshake_timeout_s=iwarp.handshake_timeout_ms / 1000,
        max_handshakes=iwarp.max_handshakes,
    )


def listen_address(config: Config) -> str:
    """Returns the configured address in the form that listen() takes."""
    return str(HostPort(config.session.listen_address, config.session.listen_port))


def configure_log(config: Config) -> None:
    """Writes session events to standard error, with the configured level and format. For services."""
    log.configure(level=config.log.level, style=config.log.format)


def server_tls(config: Config) -> ssl.SSLContext | None:
    """Returns the TLS context for listen(); None if no certificate is set. Errors as for server_context()."""
    tls = config.tls
    if not tls.certificate:
        return None
    return server_context(
        certificate=tls.certificate,
        key=tls.key or None,
        ca=tls.ca or None,
        require_client_certificate=tls.require_client_certificate,
        revoked=tls.revoked or None,
    )


def client_tls(config: Config) -> ssl.SSLContext | None:
    """Returns the TLS context for connect(); None if no authority is set. Errors as for client_context().
    With tls.verify off, neither the peer's certificate nor its name is checked."""
    tls = config.tls
    if not tls.ca:
        return None
    context = client_context(
        ca=tls.ca, certificate=tls.certificate or None, key=tls.key or None, revoked=tls.revoked or None
    )
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
