"""The parts of Spark's classes that the public methods use. PySpark's own types fit, those of Spark Connect too.

Only the runtime imports PySpark: a job can be declared, explained and tested without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

Frame_co = TypeVar("Frame_co", covariant=True)


class SparkSchema(Protocol):
    """A `pyspark.sql.types.StructType`."""

    def jsonValue(self) -> Mapping[str, object]: ...


class SparkFrame(Protocol):
    """A `pyspark.sql.DataFrame`, streaming or not."""

    @property
    def schema(self) -> SparkSchema: ...
    @property
    def isStreaming(self) -> bool: ...


class SparkSessionLike(Protocol):
    """A `pyspark.sql.SparkSession`."""

    @property
    def readStream(self) -> object: ...
    def stop(self) -> None: ...


class Unitable(Protocol):
    """A `pyspark.sql.DataFrame` whose rows can be put behind those of another one."""

    def unionAll(self, other: Self, /) -> Self: ...


class FrameMaker(Protocol[Frame_co]):
    """A `pyspark.sql.SparkSession`, as the maker of its own kind of DataFrame."""

    def createDataFrame(self, data: pa.Table, /) -> Frame_co: ...
