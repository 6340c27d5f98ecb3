"""Tensors by DLPack: the same memory, both ways; what cannot be used is refused with words."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import numpy
import pytest

import verbena
from verbena import errors
from verbena.integrations.tensors import array_in, as_array


class Foreign:
    """A tensor of some library: nothing but DLPack."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0


async def test_a_tensor_is_put_and_got_where_it_lies() -> None:
    """No copy in between: the peer's array has the bytes, and the tensor gets the peer's."""
    async with verbena.listen("127.0.0.1:0") as listener:
        region = listener.node.allocate(4096)
        there = array_in(region, "f8", (2, 8))
        here = numpy.arange(16, dtype="f8").reshape(2, 8)
        tensor = Foreign(here)
        assert numpy.shares_memory(as_array(tensor), here)
        async with verbena.connect(listener.address) as session:
            await session.write(region.remote, as_array(tensor))
            assert numpy.array_equal(there, here)
            there *= -1
            await session.read_into(region.remote, as_array(tensor))
        assert numpy.array_equal(here, there)
        assert here[1, 7] == -15


class Retyped(Foreign):
    """A tensor of a type that numpy lacks: DLPack has its code."""

    code = 4

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._array.__dlpack__(**options)
        name, offset = (b"dltensor_versioned", 52) if "max_version" in options else (b"dltensor", 20)
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        ctypes.c_uint8.from_address(get(capsule, name) + offset).value = self.code
        return capsule


@pytest.mark.parametrize(("code", "name"), [(4, "bfloat16"), (10, "float8_e4m3fn"), (12, "float8_e5m2")])
def test_a_type_that_numpy_lacks_keeps_its_bytes(
    code: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As unsigned integers of the same width, or as the type of ml_dtypes if that is imported."""
    near = numpy.arange(12, dtype="u2" if code == 4 else "u1").reshape(3, 4)
    monkeypatch.setattr(Retyped, "code", code)
    monkeypatch.delitem(sys.modules, "ml_dtypes", raising=False)
    found = as_array(Retyped(near))
    numpy.testing.assert_array_equal(found, near, strict=True)
    assert numpy.shares_memory(found, near)
    assert found.flags.writeable
    kind = numpy.dtype([("bits", near.dtype)])  # stands for the type of the package
    monkeypatch.setitem(sys.modules, "ml_dtypes", types.SimpleNamespace(**{name: kind}))
    assert as_array(Retyped(near)).dtype == kind


def test_memory_of_a_gpu_is_refused() -> None:
    with pytest.raises(errors.VerbenaError, match="not in host memory"):
        as_array(Foreign(numpy.zeros(4), device=2))


def test_a_tensor_in_pieces_is_refused() -> None:
    with pytest.raises(
        errors.VerbenaError, match=r"tensor is not C-contiguous: pass numpy\.ascontiguousarray"
    ):
        as_array(Foreign(numpy.zeros((4, 4))[:, ::2]))


async def test_an_array_must_fit_its_region() -> None:
    async with verbena.listen("127.0.0.1:0") as listener:
        region = listener.node.allocate(64)
        assert array_in(region, "u1", 64).shape == (64,)
        with pytest.raises(errors.VerbenaError, match="65 elements of 1 bytes in a region of 64"):
            array_in(region, "u1", 65)


def test_torch_tensors_share_their_memory() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(8, dtype=torch.float32)
    as_array(tensor)[0] = 5
    assert float(tensor[0]) == 5
