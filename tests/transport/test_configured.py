"""Sessions that are configured by verbena.toml."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

import verbena
from verbena import config
from verbena.config import KEYS, SECTIONS, Config
from verbena.errors import ConfigurationError, DeniedError
from verbena.kv.cluster.node import copy_node_settings
from verbena.transport import DEFAULT_PORT, Request, Settings, configured
from verbena.transport.observe import log
from verbena.transport.pool import Pool

SECRET = "correct horse battery staple"
SMALL = "[network.rdma]\nrecv_buffer_pool_size = 256\n"


class Recorder:
    """A stand-in for a configuration that records the keys that are read."""

    def __init__(self, config: Config, seen: set[str], path: str = "") -> None:
        self._config, self._seen, self._path = config, seen, path

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}" if self._path else name
        if path in SECTIONS:
            return Recorder(self._config, self._seen, path)
        self._seen.add(path)
        return self._config[path]

    def __getitem__(self, path: str) -> Any:
        self._seen.add(path)
        return self._config[path]

    def was_set(self, path: str) -> bool:
        return self._config.was_set(path)


def test_every_key_of_sessions_is_read(authority, tmp_path):
    """No documented key is without effect; services read their own keys."""
    pair = authority.issue("node")
    loaded = config.loads(
        f"[tls]\ncertificate = '{pair.certificate}'\nkey = '{pair.key}'\nca = '{authority.ca}'\n"
        "require_client_certificate = true\n"
    )
    seen: set[str] = set()
    for read in (
        configured.settings_from,
        configured.listen_address,
        configured.configure_log,
        configured.server_tls,
        configured.client_tls,
        lambda config: Pool(config=config),
        copy_node_settings,
    ):
        read(Recorder(loaded, seen))  # type: ignore[operator]
    (handler,) = (one for one in log.logger.handlers if one.get_name() == "verbena")
    log.logger.removeHandler(handler)
    log.logger.setLevel("NOTSET")
    services = ("kv.", "registry.", "replication.", "cluster.")
    assert seen == {key for key in KEYS if not key.startswith(services)}


def test_the_defaults_of_both_are_the_same():
    """A node without a configuration equals one with an empty file, except for what a file switches off."""
    ours, theirs = configured.settings_from(Config()), Settings()
    different = {name for name in vars(theirs) if getattr(ours, name) != getattr(theirs, name)}
    assert different <= {"wires", "devices", "iwarp", "ibv"}
    assert configured.listen_address(Config()) == f"127.0.0.1:{DEFAULT_PORT}"


@pytest.mark.parametrize(
    ("text", "wires"),
    [
        ("", ("shm", "iwarp")),
        ("rdma_enabled = true", ("shm", "ibv", "iwarp")),
        ('rdma_fallback = "none"', ("shm",)),
        ('rdma_enabled = true\nrdma_fallback = "none"', ("shm", "ibv")),
    ],
)
def test_the_wires_are_those_that_are_switched_on(text, wires):
    assert configured.settings_from(config.loads(f"[network]\n{text}")).wires == wires


def test_the_device_is_the_named_one_or_any():
    named = config.loads('network.rdma_device = "rxe0"')
    assert configured.settings_from(named).devices == {"ibv": "rxe0"}
    assert configured.settings_from(config.loads('network.rdma_device = "auto"')).devices == {}


def test_an_address_of_six_bytes_has_brackets():
    assert (
        configured.listen_address(config.loads('session.listen_address = "::1"')) == f"[::1]:{DEFAULT_PORT}"
    )


async def test_two_nodes_meet_by_their_files(tmp_path, authority):
    """With a secret in a file beside the configuration, and with TLS in both directions."""
    pair = authority.issue("node")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "secret").chmod(0o600)
    file = tmp_path / "verbena.toml"
    file.write_text(
        f'{SMALL}[session]\nlisten_port = 0\nsecret_file = "secret"\n[tls]\nca = "{authority.ca}"\n'
        f'certificate = "{pair.certificate}"\nkey = "{pair.key}"\nrequire_client_certificate = true\n'
    )
    loaded = config.load(file, environment={})

    def echo(request: Request) -> bytes:
        return request.payload

    async with verbena.listen(handlers={"echo": echo}, config=loaded) as listener:
        for wire in ("shm", "iwarp"):
            async with verbena.connect(listener.address, config=loaded, wire=wire) as session:
                assert await session.call("echo", b"hello") == b"hello"
                assert session._link is not None
                encryption = session._link.qp.capabilities.get("encryption", "")
                assert encryption.startswith("TLS") == (wire == "iwarp")
        other = config.override(loaded, {"session.secret_file": "", "session.secret": "another secret word"})
        with pytest.raises(DeniedError):
            await verbena.connect(listener.address, config=other)


def test_without_files_there_is_no_tls():
    assert configured.server_tls(Config()) is None
    assert configured.client_tls(Config()) is None


def test_verification_is_off_only_if_configured(authority):
    checked = configured.client_tls(config.loads(f"tls.ca = '{authority.ca}'"))
    blind = configured.client_tls(config.loads(f"tls.ca = '{authority.ca}'\ntls.verify = false"))
    assert checked is not None
    assert blind is not None
    assert (checked.verify_mode, checked.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (blind.verify_mode, blind.check_hostname) == (ssl.CERT_NONE, False)


def test_a_secret_that_everyone_may_read_is_refused(tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        configured.settings_from(config.loads(f"session.secret_file = '{path}'"))
