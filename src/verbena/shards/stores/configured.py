"""The store of the cluster map that a configuration names, with its login."""

from __future__ import annotations

from verbena.config import Config, read_secret
from verbena.shards.stores import EtcdLogin, MapStore, open_store
from verbena.transport.handshake.tls import client_context


def open_configured(config: Config, *, create: bool = True) -> MapStore:
    """open_store() for `[cluster]`. Also raises ConfigurationError for the password's file, and tls_file for
    certificates."""
    return open_store(config.cluster.map_store, create=create, login=login_of(config))


def login_of(config: Config) -> EtcdLogin:
    """The login of `[cluster.etcd]`."""
    keys = config.cluster.etcd
    tls = None
    if keys.ca:
        tls = client_context(ca=keys.ca, certificate=keys.certificate or None, key=keys.key or None)
    return EtcdLogin(keys.user, read_secret(config, "cluster.etcd.password").reveal(), tls)
