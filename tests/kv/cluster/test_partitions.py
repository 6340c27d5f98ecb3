"""Partitions in network namespaces: some cells of the matrix; `make partition-matrix` runs all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.etcd import ETCD
from support.kv import partition_matrix
from support.rdma.namespaces import NoNamespaces

pytestmark = [
    pytest.mark.skipif(ETCD is None, reason="etcd is not installed (apt-get install etcd-server)"),
    pytest.mark.timeout(180),
]


@contextmanager
def bench(folder: Path, replicas: int = 0) -> Iterator[partition_matrix.Bench]:
    try:
        with partition_matrix.bench(folder, replicas=replicas) as made:
            yield made
    except NoNamespaces as error:
        pytest.skip(str(error))


def test_a_move_that_is_cut_through_loses_nothing(tmp_path: Path) -> None:
    """Source and target are disconnected while the log follows, then the source and the map before the
    commit: no node accepts writes of slots that it does not own, and in the end every key is at one place."""
    with bench(tmp_path) as on:
        for phase, pair in (("CATCH_UP", "source–target"), ("DECIDING", "source–etcd")):
            assert partition_matrix.move_through(on, phase, pair) == "", (phase, pair)


def test_a_primary_that_is_cut_off_is_replaced_by_the_furthest_replica(tmp_path: Path) -> None:
    """The primary stops before its lease ends. Writes that WAIT counted are kept, although one replica lacked
    some."""
    with bench(tmp_path, replicas=2) as on:
        for pair, then in (("primary–etcd", ""), ("primary–replica", "the primary is killed")):
            assert partition_matrix.follow_through(on, pair, then) == "", (pair, then)
