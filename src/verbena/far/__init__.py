"""Far memory: numpy-like arrays in another node's memory, accessed one-sided through a write-back cache.
Provides Array; zeros(), attach(), free() and stat() of a memory node; MemoryNode, which serves them; and
aio, the asyncio form.
May depend on verbena.transport and below only; numpy is imported at first use."""

from verbena.far import aio
from verbena.far.array import Array
from verbena.far.client import attach, free, stat, zeros
from verbena.far.memory_node import MemoryNode

__all__ = ["Array", "MemoryNode", "aio", "attach", "free", "stat", "zeros"]
