"""Tensors of other libraries as memory that sessions move, without a copy: whatever offers DLPack on the CPU.
torch, JAX, TensorFlow, CuPy's pinned arrays and numpy do. numpy is imported when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from verbena.errors import setup_error

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import DTypeLike, NDArray

    from verbena import Region

_CPU_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: the processor reads them


class Tensor(Protocol):
    """What DLPack asks of a tensor."""

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


def as_array(tensor: Tensor) -> NDArray[Any]:
    """The same memory as a numpy array, for put(), get(), expose() and write(). Holds the tensor.
    StateError if it is on a GPU (bring it to the host first) or not in one piece (make it contiguous)."""
    device, _ = tensor.__dlpack_device__()
    if device not in _CPU_DEVICES:
        detail = f"the tensor is on a device of DLPack's type {device}, not in the processor's memory"
        raise setup_error("invalid_argument", operation="use a tensor", detail=detail)
    array = _numpy().from_dlpack(tensor)
    if not array.flags.c_contiguous:
        detail = "the tensor's elements do not lie one after the other: make it contiguous"
        raise setup_error("invalid_argument", operation="use a tensor", detail=detail)
    return array  # type: ignore[no-any-return]


def array_in(region: Region, dtype: DTypeLike, shape: int | Sequence[int]) -> NDArray[Any]:
    """An array on exposed memory: what it holds, peers see. torch.from_dlpack() makes a tensor of it.
    VerbenaError if the region is too small."""
    np = _numpy()
    kind = np.dtype(dtype)
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    count = int(np.prod(lengths, dtype=np.int64))
    if count * kind.itemsize > len(region):
        detail = f"{count} elements of {kind.itemsize} bytes in a region of {len(region)}"
        raise setup_error("out_of_range", operation="make an array", detail=detail)
    memory = memoryview(region.memory).cast("B")
    return np.frombuffer(memory, dtype=kind, count=count).reshape(lengths)  # type: ignore[no-any-return]


def _numpy() -> ModuleType:
    try:
        import numpy
    except ImportError as error:
        raise setup_error("numpy_missing", operation="use a tensor", detail=str(error)) from error
    return numpy
