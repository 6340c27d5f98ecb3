"""The map in an etcd that requires TLS, client certificates and a login."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.etcd import ETCD, etcd

from verbena import config
from verbena.errors import ConfigurationError, VerbenaError
from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.stores import change
from verbena.shards.stores.configured import open_configured
from verbena.transport.handshake.authority import Authority

MEMBER = Member("a" * 40, "127.0.0.1", 7000, "127.0.0.1:7001")
PASSWORD = "correct horse"


class Locked(NamedTuple):
    """An etcd with a user `node` whose role is limited to the prefix `verbena/`."""

    address: str
    folder: Path

    def settings(self, **changes: str) -> config.Config:
        """The configuration of a node, with `[cluster.etcd]` keys changed."""
        keys = {
            "user": "node",
            "password_file": str(self.folder / "password"),
            "ca": str(self.folder / "ca.pem"),
            "certificate": str(self.folder / "node.pem"),
            "key": str(self.folder / "node.key"),
            **changes,
        }
        lines = [f'cluster.map_store = "etcds://{self.address}/verbena"']
        lines += [f'cluster.etcd.{name} = "{value}"' for name, value in keys.items()]
        return config.loads("\n".join(lines))


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    if ETCD is None:
        pytest.skip("etcd is not installed (apt-get install etcd-server)")
    folder = tmp_path_factory.mktemp("locked")
    authority = Authority.create(folder)
    authority.issue("etcd", ["127.0.0.1"])
    authority.issue("node", ["127.0.0.1"])
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "password").chmod(0o600)
    files = ("--cert-file", f"{folder}/etcd.pem", "--key-file", f"{folder}/etcd.key")
    clients = ("--client-cert-auth", "--trusted-ca-file", f"{folder}/ca.pem")
    # Tokens end after two seconds, so that the tests see one expire.
    with etcd(folder, tls=(*files, *clients, "--auth-token-ttl", "2")) as address:
        login = [f"--cacert={folder}/ca.pem", f"--cert={folder}/node.pem", f"--key={folder}/node.key"]
        for words in (
            "user add root:root",
            f"user add node:{PASSWORD}",
            "role add map",
            "role grant-permission map --prefix=true readwrite verbena/",
            "user grant-role node map",
            "user grant-role root root",
            "auth enable",
        ):
            parts = [word.replace("_", " ") for word in words.replace(PASSWORD, "correct_horse").split()]
            subprocess.run(
                ["etcdctl", "--endpoints", f"https://{address}", *login, *parts],
                env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
                capture_output=True,
                check=True,
                timeout=20,
            )
        yield Locked(address, folder)


async def test_a_node_logs_in_with_certificate_and_password(locked: Locked) -> None:
    """Reads, swaps, watches and leases work; the password comes from a file."""
    store = open_configured(locked.settings())
    swapped = await change(store, lambda map: map.meet(MEMBER))
    lease = await store.lease(MEMBER.id, 5.0)
    await lease.renew()
    assert await store.leaseholders() == {MEMBER.id}
    watched = store.watch(0)
    assert await anext(watched) == swapped
    await lease.revoke()
    await watched.aclose()  # type: ignore[attr-defined]
    await store.close()


async def test_an_expired_token_is_replaced(locked: Locked) -> None:
    """The client logs in again and repeats the request; the caller notices nothing."""
    store = open_configured(locked.settings())
    before = await store.load()
    store._http._token = "no-such-token.1"  # type: ignore[attr-defined]
    assert await store.load() == before
    await store.close()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"password_file": "", "password": "wrong-one"}, "credentials"),
        ({"user": "", "password_file": ""}, "map_store"),
        ({"certificate": "", "key": ""}, "tls_handshake"),
    ],
    ids=["password", "no login", "no certificate"],
)
async def test_a_wrong_login_is_refused(locked: Locked, changes: dict[str, str], code: str) -> None:
    """The error names etcd's address and never the password; the map is not changed."""
    store = open_configured(locked.settings(**changes))
    with pytest.raises(VerbenaError) as caught:
        await store.compare_and_swap(0, ClusterMap().meet(MEMBER))
    assert caught.value.code == code
    assert caught.value.peer == locked.address
    assert "wrong-one" not in (caught.value.detail or "")
    await store.close()


async def test_an_etcd_of_another_authority_is_refused(locked: Locked, tmp_path: Path) -> None:
    """Nothing is sent to it, not even the password."""
    other = Authority.create(tmp_path / "other")
    store = open_configured(locked.settings(ca=str(other.certificate)))
    with pytest.raises(VerbenaError) as caught:
        await store.load()
    assert caught.value.code == "tls_handshake"
    await store.close()


async def test_a_user_without_the_right_is_refused(locked: Locked) -> None:
    """A map outside the role's prefix can be neither read nor written."""
    settings = locked.settings()
    outside = config.override(settings, {"cluster.map_store": f"etcds://{locked.address}/elsewhere"})
    store = open_configured(outside)
    with pytest.raises(VerbenaError, match="permission denied"):
        await store.load()
    await store.close()


def test_a_password_file_that_everyone_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret word")
    file.chmod(0o644)
    settings = config.loads(
        f'cluster.map_store = "etcds://h:1"\ncluster.etcd.user = "u"\ncluster.etcd.password_file = "{file}"'
    )
    with pytest.raises(ConfigurationError, match="readable by all users"):
        open_configured(settings)
