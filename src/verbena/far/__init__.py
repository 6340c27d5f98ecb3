"""Far memory: numpy-like arrays in another node's memory, accessed one-sided through a write-back cache.
Provides Array; allocate(), attach(), free() and stat() of a memory node; MemoryNode, which serves them.
May depend on verbena.transport and below only; numpy is imported at first use."""

from verbena.far.array import Array
from verbena.far.client import allocate, attach, free, stat
from verbena.far.memory_node import MemoryNode

__all__ = ["Array", "MemoryNode", "allocate", "attach", "free", "stat"]
