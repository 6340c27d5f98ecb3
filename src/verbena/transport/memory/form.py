"""The form of an array in memory: element type and shape, as values that travel. numpy is imported on
demand."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verbena.errors import setup_error
from verbena.transport.memory.owners import is_array

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray
    from typing_extensions import Buffer

MAX_DIMENSIONS = 32
_NUMPY_TYPE = re.compile(r"[<>|][biufcmMSUV][0-9]{1,9}(\[[0-9]{0,9}[a-zA-Z]{1,2}\])?")
# Types that ml_dtypes adds to numpy. numpy describes them as raw bytes, so they travel by name.
_NAMED_TYPE = re.compile(r"bfloat16|float[468]_[a-z0-9]{4,12}|u?int[124]")


@dataclass(frozen=True)
class Form:
    """`dtype`: numpy's dtype.str, such as "<f4", or the name of a type of ml_dtypes, such as "bfloat16"."""

    dtype: str
    shape: tuple[int, ...]

    def numpy_type(self) -> Any:
        """Returns the numpy dtype. UnavailableError if numpy or ml_dtypes is needed and missing."""
        if _NUMPY_TYPE.fullmatch(self.dtype):
            return numpy_module().dtype(self.dtype)
        try:
            import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            detail = f"ml_dtypes, for arrays of {self.dtype}"
            raise setup_error("package_missing", operation="use an array", detail=detail) from error
        return numpy_module().dtype(getattr(ml_dtypes, self.dtype))

    def array_on(self, data: Buffer) -> NDArray[Any]:
        """Returns the bytes as an array of this form, without a copy."""
        array = numpy_module().frombuffer(data, dtype="u1")
        return array.view(self.numpy_type()).reshape(self.shape)  # type: ignore[no-any-return]

    def empty(self) -> NDArray[Any]:
        return numpy_module().empty(self.shape, dtype=self.numpy_type())  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def form_of(buffer: Any, operation: str) -> Form | None:
    """Returns the form of a numpy array or of a typed buffer such as array.array; None for plain bytes.
    StateError for elements that have no meaning in another process, or that are records."""
    if is_array(buffer):
        return Form(_type_text(buffer.dtype, operation), tuple(buffer.shape))
    view = memoryview(buffer)
    if view.format == "B" and view.ndim == 1:
        return None
    array = numpy_module().asarray(view)
    return Form(_type_text(array.dtype, operation), array.shape)


def checked_form(dtype: object, shape: object, nbytes: int) -> Form:
    """Returns the form that a peer sent. ValueError unless it is exact and fills `nbytes`."""
    if not isinstance(dtype, str) or not _is_known(dtype):
        raise ValueError("the dtype is not the text of a numpy type")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"the shape has {MAX_DIMENSIONS} dimensions at most")
    if not all(type(length) is int and 0 <= length < 2**63 for length in shape):
        raise ValueError("the shape consists of lengths")
    form = Form(dtype, tuple(shape))
    try:
        element_bytes = form.numpy_type().itemsize
    except (AttributeError, TypeError) as error:
        raise ValueError(f"there is no type {dtype}") from error
    if element_bytes == 0 or element_bytes * math.prod(shape) != nbytes:
        raise ValueError(f"{form} does not fill {nbytes} bytes")
    return form


def numpy_module() -> ModuleType:
    try:
        import numpy
    except ImportError as error:
        raise setup_error("numpy_missing", operation="use an array", detail=str(error)) from error
    return numpy


def _is_known(text: str) -> bool:
    return bool(_NUMPY_TYPE.fullmatch(text) or _NAMED_TYPE.fullmatch(text))


def _type_text(dtype: Any, operation: str) -> str:
    text: str = dtype.name if _NAMED_TYPE.fullmatch(dtype.name) else dtype.str
    if dtype.hasobject or dtype.names is not None or not _is_known(text):
        detail = f"elements of type {dtype} cannot be shared: use numbers, or a view of bytes"
        raise setup_error("invalid_argument", operation=operation, detail=detail)
    return text
