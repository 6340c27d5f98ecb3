"""The codec "numpy": one array, or None. A header with element type and shape, then the elements.
An array that was received is a read-only view of the message: copy it to change it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from verbena.errors import setup_error
from verbena.transport.memory.buffers import contiguous_bytes
from verbena.transport.memory.form import MAX_DIMENSIONS, checked_form, form_of, numpy_module

if TYPE_CHECKING:
    from typing_extensions import Buffer

_COUNTS = struct.Struct("<BB")  # bytes of the type's text, dimensions
_ALIGNMENT = 16  # of the elements in the message


class NumpyCodec:
    name = "numpy"

    def encode(self, value: Any) -> Buffer:
        """StateError for what is not an array of numbers, or a value of which numpy makes one."""
        if value is None:
            return b""
        array = numpy_module().asarray(value, order="C")
        form = form_of(array, "encode")
        assert form is not None  # it is an array
        if len(form.shape) > MAX_DIMENSIONS:
            detail = f"an array of more than {MAX_DIMENSIONS} dimensions"
            raise setup_error("invalid_argument", operation="encode", detail=detail)
        text = form.dtype.encode()
        header = _COUNTS.pack(len(text), len(form.shape)) + text
        header += struct.pack(f"<{len(form.shape)}Q", *form.shape)
        return b"".join((header, bytes(-len(header) % _ALIGNMENT), contiguous_bytes(array, "encode")))

    def decode(self, data: bytes) -> Any:
        """ValueError unless the message is exact."""
        if not data:
            return None
        if len(data) < _COUNTS.size:
            raise ValueError("the header is incomplete")
        text_bytes, dimensions = _COUNTS.unpack_from(data)
        shape_at = _COUNTS.size + text_bytes
        end = shape_at + 8 * dimensions
        start = end + -end % _ALIGNMENT
        if len(data) < start or any(data[end:start]):
            raise ValueError("the header is incomplete")
        shape = struct.unpack_from(f"<{dimensions}Q", data, shape_at)
        dtype = data[_COUNTS.size : shape_at].decode("ascii")
        return checked_form(dtype, list(shape), len(data) - start).array_on(memoryview(data)[start:])


def make() -> NumpyCodec:
    numpy_module()
    return NumpyCodec()
