"""The tag of a side output, with PyFlink's name."""

from __future__ import annotations

from typing import Self

from tidegate.flink.type_information import TypeInformation


class OutputTag(str):
    """`late = OutputTag("late", Types.STRING())`. A function emits with `yield late, value`.

    A tag is the name of its side output: `process(…, side_outputs={late: "word string"})`, then `stream.side_output(late)`.
    """

    type_info: TypeInformation | None

    def __new__(cls, tag_id: str, type_info: TypeInformation | None = None) -> Self:
        tag = super().__new__(cls, tag_id)
        tag.type_info = type_info
        return tag

    @property
    def tag_id(self) -> str:
        return str(self)

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)
