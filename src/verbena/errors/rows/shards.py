"""The cluster map, its store, and moves of slots between nodes."""

from __future__ import annotations

from verbena.errors.classes import (
    AddressError,
    BusyError,
    DeniedError,
    ProtocolError,
    RemoteError,
    StateError,
    TimedOutError,
)
from verbena.errors.explanation import Explanation

ROWS = (
    Explanation(
        "bad_envelope",
        ProtocolError,
        what="a message about a shard cannot be decoded",
        causes=(
            "the peer runs another version of Verbena",
            "the message was truncated or changed by the network",
        ),
        remedy="run the same version on all nodes (`verbena --version`); if the versions are equal, check the"
        " wire with `verbena doctor`",
    ),
    Explanation(
        "bad_checkpoint",
        ProtocolError,
        what="the checkpoint of a move cannot be read",
        causes=(
            "the disk damaged the file",
            "another version of Verbena wrote the file",
        ),
        remedy="delete the file: the cluster map holds the owner of every slot, and the move starts again",
    ),
    Explanation(
        "bad_cluster_map",
        ProtocolError,
        what="the store does not hold a valid cluster map",
        causes=(
            "`cluster.map_store` names a key or file of another program",
            "another version of Verbena wrote the map",
        ),
        remedy="set `cluster.map_store` to a file or an etcd prefix that only this cluster uses, and run one"
        " version on all nodes",
    ),
    Explanation(
        "map_conflict",
        BusyError,
        what="another node or operator changed the cluster map first",
        causes=(
            "two nodes or two operators changed the map at the same time",
            "the member that is to be replaced still holds its lease",
        ),
        remedy="read the map (`verbena shards map`) and retry",
    ),
    Explanation(
        "map_refused",
        StateError,
        what="the cluster map does not allow the change",
        causes=(
            "the map has changed since it was read",
            "the node is not a member, still owns slots, or takes part in a move",
        ),
        remedy="read the map (`verbena shards map`), and correct the request",
    ),
    Explanation(
        "map_store",
        AddressError,
        what="the store of the cluster map cannot be used",
        causes=(
            "the store does not run, or its address or path is wrong",
            "this process may not write to the store",
        ),
        remedy="check `cluster.map_store`; for etcd run `etcdctl endpoint health`",
    ),
    Explanation(
        "map_store_timeout",
        TimedOutError,
        what="the store of the cluster map did not answer in time",
        causes=("the network is partitioned, or etcd has no leader",),
        remedy="check the network path to etcd and run `etcdctl endpoint health`",
    ),
    Explanation(
        "map_not_asked",
        TimedOutError,
        what="the change of the cluster map was not sent, because its store did not answer in time",
        causes=("the store is slow or unreachable, or another process has locked its file",),
        remedy="retry the change; a move retries it automatically",
    ),
    Explanation(
        "lease_lost",
        StateError,
        what="the node's lease in the cluster has expired",
        causes=(
            "the store of the cluster map was unreachable for longer than `cluster.node_timeout_ms`",
            "the process was stopped, or the machine was suspended",
        ),
        remedy="no action is needed: the node takes a new lease and reads the map before it serves again; if"
        " it happens often, raise `cluster.node_timeout_ms`",
    ),
    Explanation(
        "not_ready",
        StateError,
        what="the target is too far behind to take over",
        causes=("clients write faster than the wire or the target can copy",),
        remedy="wait until the target has caught up (`verbena shards map`, `INFO replication`), or reduce the"
        " write load",
    ),
    Explanation(
        "move_failed",
        RemoteError,
        what="the slots were not moved",
        causes=(
            "the target ended, or could not store the data",
            "clients would have waited longer than `cluster.write_pause_budget_ms`",
        ),
        remedy="read the detail, fix its cause, and move the slots again; the source still owns them",
    ),
    Explanation(
        "not_a_member",
        DeniedError,
        what="the other end of a session did not prove that it is the expected member of the cluster",
        causes=(
            "the address that the cluster map names for the member belongs to another process now",
            "`CLUSTER FORGET` removed the member, or another node was started with a copy of its folder",
            "the two nodes use different map stores (`cluster.map_store`)",
        ),
        remedy="check `cluster.map_store` at both nodes, and that each node has its own `cluster.folder`;"
        " start a removed node again to let it join",
    ),
)
