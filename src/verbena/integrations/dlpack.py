"""DLPack tensors of types that numpy lacks: bfloat16 and 8-bit floats.
May depend on numpy and ctypes only."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

# By the capsule's name: where the DLTensor is in the managed one.
_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}
_UNSIGNED = 1  # kDLUInt
# kDLDataTypeCode: the name of the type in the package ml_dtypes. https://dmlc.github.io/dlpack/latest/c_api.html
_FLOATS = {
    4: "bfloat16",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
}


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Retyped:
    """Exports a tensor; one of a float type that numpy lacks, as unsigned integers of the same width."""

    def __init__(self, tensor: Any) -> None:
        self.name: str | None = None  # of the float type
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._tensor.__dlpack__(**options)
        described = _described(capsule)
        self.name = _FLOATS.get(described.code)
        if self.name is not None:
            described.code = _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._tensor.__dlpack_device__()
        return device


def array_of(tensor: Any) -> NDArray[Any]:
    """Returns the tensor's memory as a numpy array. Types that numpy lacks are those of ml_dtypes if the
    program has imported it, otherwise unsigned integers of the same width."""
    import numpy

    retyped = _Retyped(tensor)
    array: NDArray[Any] = numpy.from_dlpack(retyped)
    kind = getattr(sys.modules.get("ml_dtypes"), retyped.name, None) if retyped.name else None
    return array if kind is None else array.view(kind)


def _described(capsule: Any) -> _Tensor:
    get_name, get = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name = get_name(capsule)
    return _Tensor.from_address(get(capsule, name) + _OFFSETS[name])
