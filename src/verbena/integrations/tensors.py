"""Uses tensors of other libraries as memory for sessions, without a copy: any DLPack tensor in host memory,
such as those of torch, JAX, TensorFlow, numpy and CuPy's pinned arrays. numpy is imported on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from verbena.errors import setup_error
from verbena.integrations.dlpack import array_of

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import DTypeLike, NDArray

    from verbena import Region

_CPU_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: accessible by the CPU


class Tensor(Protocol):
    """The protocol that DLPack requires of a tensor."""

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


def as_array(tensor: Tensor) -> NDArray[Any]:
    """Returns the tensor's memory as a numpy array for read_into(), write() and expose(); it keeps the
    tensor alive. bfloat16 and 8-bit floats are types of ml_dtypes if the program has imported that package,
    otherwise unsigned integers. Raises StateError if the tensor is on a GPU (copy it to the host) or not
    contiguous."""
    device, _ = tensor.__dlpack_device__()
    if device not in _CPU_DEVICES:
        detail = f"the tensor is on DLPack device type {device}, not in host memory"
        raise setup_error("invalid_argument", operation="use a tensor", detail=detail)
    _numpy()
    array = array_of(tensor)
    if not array.flags.c_contiguous:
        detail = "tensor is not C-contiguous: pass numpy.ascontiguousarray(tensor) or tensor.contiguous()"
        raise setup_error("invalid_argument", operation="use a tensor", detail=detail)
    return array


def array_in(region: Region, dtype: DTypeLike, shape: int | Sequence[int]) -> NDArray[Any]:
    """Returns an array on a region's memory, visible to peers; torch.from_dlpack() turns it into a tensor.
    Raises VerbenaError if the region is too small."""
    np = _numpy()
    kind = np.dtype(dtype)
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    count = int(np.prod(lengths, dtype=np.int64))
    if count * kind.itemsize > len(region):
        detail = f"{count} elements of {kind.itemsize} bytes in a region of {len(region)}"
        raise setup_error("out_of_range", operation="create an array", detail=detail)
    return np.frombuffer(region, dtype=kind, count=count).reshape(lengths)  # type: ignore[no-any-return]


def _numpy() -> ModuleType:
    try:
        import numpy
    except ImportError as error:
        raise setup_error("numpy_missing", operation="use a tensor", detail=str(error)) from error
    return numpy
