"""The key-value store: its memory, its log files, its replicas and its client."""

from __future__ import annotations

from verbena.errors.classes import BusyError, DeniedError, ProtocolError, StateError, UnavailableError
from verbena.errors.explanation import Explanation

ROWS = (
    Explanation(
        "no_memory",
        BusyError,
        what="the store has no memory for a key or a value",
        causes=(
            "the kernel refused to map more memory: the machine, the cgroup or RLIMIT_AS is at its limit",
            "memory that sessions can read could not be allocated or registered: the detail contains why",
            "more keys share one hash than the index can hold",
        ),
        remedy="delete keys, or set `kv.maxmemory` below the memory that this process may use; or raise the"
        " limit: `ulimit -v`, `ulimit -l`, `--memory` for docker",
        checks=(
            "the detail contains `mmap() failed`: compare `free -m` and `ulimit -v` with `used_memory` of"
            " `INFO memory`",
            "the detail contains RLIMIT_MEMLOCK: raise the limit, see `verbena explain memlock`",
        ),
    ),
    Explanation(
        "protocol_error",
        ProtocolError,
        what="the store's reply is not valid RESP",
        causes=(
            "the client and the server run different versions of Verbena",
            "another program than a Verbena store answers the store's methods on this session",
        ),
        remedy="run the same version at both ends (`verbena --version`), and open a new connection",
    ),
    Explanation(
        "denied",
        DeniedError,
        what="the primary refused the replica",
        causes=(
            "the primary is still loading its data, or has not read the cluster map yet",
            "the server that `replication.replicaof` names is itself a replica",
            "the primary runs another version of Verbena, or its `kv.databases` is larger than the replica's",
        ),
        remedy="read the detail, which is the primary's reason; wait if it is loading, else point"
        " `replication.replicaof` at the primary, run one version, or set `kv.databases` to the same number;"
        " the replica retries automatically",
    ),
    Explanation(
        "log_failed",
        UnavailableError,
        what="a file of the store could not be read or written",
        causes=(
            "the disk is full, or the directory belongs to another user",
            "the disk or its controller has a fault",
        ),
        remedy="free space on the disk (`df -h`) or correct the owner and permissions of"
        " `kv.persistence.dir`; read `dmesg` for disk errors",
    ),
    Explanation(
        "log_corrupt",
        StateError,
        what="the store's files are damaged, so the store does not load them",
        causes=(
            "the disk changed or lost bytes that were written earlier",
            "a person or a program changed, copied or deleted files of the directory",
            "a newer version of Verbena wrote the files",
        ),
        remedy="restore the files from a backup; or inspect them with `verbena kv check DIR` and cut off the"
        " damage with `verbena kv repair DIR`, which keeps the bytes that it cuts",
    ),
    Explanation(
        "log_locked",
        BusyError,
        what="another process uses the store's directory",
        causes=(
            "another server runs with the same directory",
            "a server that is shutting down has not released the directory yet",
        ),
        remedy="give each server its own directory (`kv.persistence.dir`), or stop the other server first",
    ),
)
