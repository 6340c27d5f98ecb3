"""The state of a store at one moment, as plain values, from which its metrics are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verbena.kv.server.counters import CommandStats


@dataclass(frozen=True)
class ProcessState:
    """What is known although the engine does not answer. `is_up`: it has answered."""

    is_up: bool
    started_s: float  # Unix time
    uptime_s: int
    version: str
    python: str


@dataclass(frozen=True)
class ReplicaState:
    """A replica as its primary sees it."""

    host: str
    port: str
    state: str  # online, send_bulk or disconnected, as in INFO
    offset: int
    lag_bytes: int
    silent_s: float  # since its last receipt


@dataclass(frozen=True)
class ClusterState:
    """The cluster as this node sees it. `fields`: those of CLUSTER INFO."""

    fields: Mapping[str, Any]
    slots_owned: int
    members: Mapping[str, int]  # by health
    moves: Mapping[str, int]  # in flight, by direction
    moves_copied_bytes: int
    moves_ended: Mapping[str, int]  # by outcome
    lease_remaining_s: float | None  # None: there was none yet
    refused_messages: int


@dataclass(frozen=True)
class StoreSnapshot:
    """`fields`: fields of INFO by name, without those that cost time for each client."""

    fields: Mapping[str, Any]
    databases: tuple[tuple[int, int, int], ...]  # index, keys, keys with a time to live
    commands: Mapping[str, CommandStats]
    errors: Mapping[str, int]
    clients: Mapping[str, int]  # by frontend
    sessions: Mapping[str, int]  # the counters of the frontend for sessions; empty: there is none
    slowlog: Mapping[str, float] = field(default_factory=dict)
    replicas: tuple[ReplicaState, ...] = ()
    cluster: ClusterState | None = None
