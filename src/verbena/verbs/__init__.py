"""The verbs: devices, protection domains, memory regions, completion queues, queue pairs, connections.
Provides the same model on every wire; the capabilities of a device report what its provider lacks.
May depend on verbena.errors and the native core only."""

from verbena._native import (
    ConnectionState,
    MemorySlice,
    Opcode,
    PortState,
    QpState,
    RecvWorkRequest,
    RemoteMemory,
    SendWorkRequest,
    WcOpcode,
    WorkCompletion,
)
from verbena.errors import WcStatus
from verbena.verbs.access import Access
from verbena.verbs.attributes import DeviceAttributes, PortAttributes, QpAttributes, QpLimits
from verbena.verbs.completion_queue import CompletionQueue
from verbena.verbs.connection import Connection
from verbena.verbs.context import Context
from verbena.verbs.device import Device, ProviderInfo, devices, open_device, providers
from verbena.verbs.endpoint import Endpoint
from verbena.verbs.gid import Gid
from verbena.verbs.ibv import IbvOptions
from verbena.verbs.iwarp import IwarpOptions
from verbena.verbs.listener import ConnectRequest, Listener
from verbena.verbs.memory_region import MemoryRegion
from verbena.verbs.memory_window import MemoryWindow
from verbena.verbs.operations import Received
from verbena.verbs.protection_domain import ProtectionDomain
from verbena.verbs.queue_pair import QueuePair
from verbena.verbs.quic import QuicOptions
from verbena.verbs.shared_receive_queue import SharedReceiveQueue
from verbena.verbs.stream_options import Tls
from verbena.verbs.sync import SyncOperations

__all__ = [
    "Access",
    "CompletionQueue",
    "ConnectRequest",
    "Connection",
    "ConnectionState",
    "Context",
    "Device",
    "DeviceAttributes",
    "Endpoint",
    "Gid",
    "IbvOptions",
    "IwarpOptions",
    "Listener",
    "MemoryRegion",
    "MemorySlice",
    "MemoryWindow",
    "Opcode",
    "PortAttributes",
    "PortState",
    "ProtectionDomain",
    "ProviderInfo",
    "QpAttributes",
    "QpLimits",
    "QpState",
    "QueuePair",
    "QuicOptions",
    "Received",
    "RecvWorkRequest",
    "RemoteMemory",
    "SendWorkRequest",
    "SharedReceiveQueue",
    "SyncOperations",
    "Tls",
    "WcOpcode",
    "WcStatus",
    "WorkCompletion",
    "devices",
    "open_device",
    "providers",
]
