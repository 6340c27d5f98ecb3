"""Certificate files are checked when a device of a wire with TLS is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.certificates import Authority
from support.rdma import iwarp_tls
from support.rdma.iwarp_tls import issue

from verbena import errors, verbs
from verbena.verbs import Context, IwarpOptions, QuicOptions, Tls

pytestmark = pytest.mark.skipif(bool(iwarp_tls.MISSING), reason=iwarp_tls.MISSING)

OPTIONS: dict[str, type[IwarpOptions | QuicOptions]] = {"iwarp": IwarpOptions, "quic": QuicOptions}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Tls:
    return issue(authority)


@pytest.fixture(params=OPTIONS)
def open_with(request: pytest.FixtureRequest) -> Callable[[Tls], Context]:
    """Opens a device on the loopback with these files."""
    info = next(info for info in verbs.providers() if info.name == request.param)
    if not info.available:
        pytest.skip(info.reason)
    return lambda tls: verbs.open_device(f"{info.name}:lo", options=OPTIONS[info.name](tls=tls))


@pytest.mark.parametrize("part", ["certificate", "key", "authority"])
def test_files_that_are_missing_or_wrong_are_named(
    open_with: Callable[[Tls], Context], tls: Tls, tmp_path: Path, part: str
) -> None:
    """StateError, tls_file, with the path."""
    wrong = tmp_path / "wrong.pem"
    for content in (None, "no certificate"):
        if content is not None:
            wrong.write_text(content)
        with pytest.raises(errors.StateError, match=rf"{part}.*wrong\.pem") as caught:
            open_with(replace(tls, **{part: wrong}))
        assert caught.value.code == "tls_file"


def test_a_key_of_another_certificate_is_refused(
    open_with: Callable[[Tls], Context], tls: Tls, authority: Authority
) -> None:
    with pytest.raises(errors.StateError, match="key") as caught:
        open_with(replace(tls, key=issue(authority, "another").key))
    assert caught.value.code == "tls_key_mismatch"
