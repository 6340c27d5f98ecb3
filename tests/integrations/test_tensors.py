"""Tensors by DLPack: the same memory, both ways; what cannot be used is refused with words."""

from __future__ import annotations

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
    async with await verbena.listen("127.0.0.1:0") as listener:
        region = listener.node.allocate(4096)
        there = array_in(region, "f8", (2, 8))
        here = numpy.arange(16, dtype="f8").reshape(2, 8)
        tensor = Foreign(here)
        assert numpy.shares_memory(as_array(tensor), here)
        async with await verbena.connect(listener.address) as session:
            await session.put(as_array(tensor), region.remote)
            assert numpy.array_equal(there, here)
            there *= -1
            await session.get(region.remote, as_array(tensor))
        assert numpy.array_equal(here, there)
        assert here[1, 7] == -15


def test_memory_of_a_gpu_is_refused() -> None:
    with pytest.raises(errors.VerbenaError, match="not in host memory"):
        as_array(Foreign(numpy.zeros(4), device=2))


def test_a_tensor_in_pieces_is_refused() -> None:
    with pytest.raises(errors.VerbenaError, match="contiguous"):
        as_array(Foreign(numpy.zeros((4, 4))[:, ::2]))


async def test_an_array_must_fit_its_region() -> None:
    async with await verbena.listen("127.0.0.1:0") as listener:
        region = listener.node.allocate(64)
        assert array_in(region, "u1", 64).shape == (64,)
        with pytest.raises(errors.VerbenaError, match="65 elements of 1 bytes in a region of 64"):
            array_in(region, "u1", 65)


def test_torch_tensors_share_their_memory() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(8, dtype=torch.float32)
    as_array(tensor)[0] = 5
    assert float(tensor[0]) == 5
