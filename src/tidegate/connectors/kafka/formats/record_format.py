"""What the formats have in common: codecs between bytes and Python values, and being sent to tasks as text."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, Self

from tidegate.schema.datatype import DataType

RecordPart = Literal["key", "value"]
Decode = Callable[[bytes], Any]
"""From the bytes of a record to a value that Arrow converts to the format's type."""
Encode = Callable[[Any], bytes]
"""From a value that Arrow returns to the bytes of a record."""


class RecordFormat(ABC):
    """A format of keys or values. Frozen configuration: it is sent to every task and opens nothing when constructed."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def reads_any_topic(self) -> bool:
        """Whether the schema to read with does not depend on the topic."""

    def subject_of(self, topic: str, part: RecordPart) -> str:
        """Return the name under which a registry would know the schema."""
        return f"{topic}-{part}"

    def errors(self, doing: str) -> AbstractContextManager[None]:
        """Translate errors of a service that the format asks. `doing` completes the sentence "The service could not …"."""
        return nullcontext()

    def error_of_service(self, error: Exception, doing: str) -> Exception | None:
        """Return what an error of a codec means if a service is to blame. None if the row or the record is."""
        return None

    # -- as text, for options of a source and as a key of caches --------------------------------------------------------

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, **self.document()}, sort_keys=True)

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return the arguments with which the format is made again."""

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        return cls(**document)

    # -- reading ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def pinned(self, subject: str) -> Self:
        """Return the format with the schema to read with: the one given, else the latest of the subject. Asks the registry."""

    @abstractmethod
    def data_type(self) -> DataType:
        """Return the type of a pinned format's column."""

    @abstractmethod
    def decoder(self, subject: str) -> Decode:
        """Return a function that decodes records. Whatever schema a record was written with, it is resolved to the pinned
        one."""

    def schema_id(self, data: bytes) -> int | None:
        """Return the id of the schema that a record names. None: it names none."""
        return None

    def decode_again(self, decode: Decode, data: bytes, subject: str, error: Exception, latest: float) -> Any:
        """Decode a record that has failed once, if that may help until `latest`. Raises `error` if the record is to blame."""
        raise error

    # -- writing ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def check(self, column: DataType) -> None:
        """Raise if a column does not fit the schema to write with."""

    @abstractmethod
    def register(self, column: DataType, subject: str) -> None:
        """Make sure that the subject has the schema to write with: register it, or only look for it."""

    @abstractmethod
    def encoder(self, column: DataType, subject: str) -> Encode:
        """Return a function that encodes values of a column. Looks its schema up once and registers nothing."""
