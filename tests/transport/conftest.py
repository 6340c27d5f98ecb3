"""Fixtures of the transport's tests: certificates that are made once per run."""

from __future__ import annotations

import pytest
from support.certificates import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that no node trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")
