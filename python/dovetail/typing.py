"""Types that the stubs of operator packages use. No framework is imported."""
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from . import Generator

__all__ = ["AnyArray", "Array", "DType", "Generator", "Number", "Sequence", "SupportsDLPack"]


class SupportsDLPack(Protocol):
    """An array or tensor: of whichever framework."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...


Array = TypeVar("Array", bound=SupportsDLPack)  # arrays in, arrays of the same kind out
AnyArray: TypeAlias = Any
Number: TypeAlias = bool | int | float | complex
DType: TypeAlias = Any
