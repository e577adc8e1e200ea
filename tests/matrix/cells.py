"""The cells of the support matrix: a Python, a Spark, a Java, and which versions of the other dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SPARKS = ("4.1.4", "4.2.1", "4.3.0")
JAVAS = ("17", "21")


class Dependencies(StrEnum):
    """What is installed besides tidegate and Spark."""

    LOCKED = "locked"
    """What `uv.lock` says."""
    OLDEST = "oldest"
    """The oldest versions that `pyproject.toml` allows, of the package and of its extras."""
    NEWEST = "newest"
    """The newest ones that it allows."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination. Versions are those that somebody chooses: Python and Java by their minor or major number."""

    python: str
    spark: str
    java: str = "17"
    dependencies: Dependencies = Dependencies.LOCKED

    def __str__(self) -> str:
        return f"python{self.python}-spark{self.spark}-java{self.java}-{self.dependencies}"


DEFAULT = Cell("3.11", "4.3.0")
"""What CI runs everything with."""

CELLS: tuple[Cell, ...] = (
    *(Cell(python, spark) for python, spark in product(PYTHONS, SPARKS)),
    *(Cell("3.11", spark, java="21") for spark in SPARKS),
    Cell("3.11", "4.1.4", dependencies=Dependencies.OLDEST),
    Cell("3.11", "4.3.0", dependencies=Dependencies.OLDEST),
    Cell("3.11", "4.1.4", dependencies=Dependencies.NEWEST),
    Cell("3.11", "4.3.0", dependencies=Dependencies.NEWEST),
    Cell("3.14", "4.3.0", java="21", dependencies=Dependencies.NEWEST),
)
"""Every Python with every Spark; the rest varies one thing at a time, and the last cell has the newest of everything."""


def chosen(words: Sequence[str]) -> list[Cell]:
    """The cells whose name contains one of these words; all of them without a word."""
    return [cell for cell in CELLS if not words or any(word in str(cell) for word in words)]


def in_turn(turn: int, cells: Sequence[Cell]) -> Cell:
    """One of these cells, another one for the next number. Consecutive ones have another Spark where they can.

    None with the newest dependencies: a release of somebody else must not decide whether a change lands.
    """
    others = sorted(
        (cell for cell in cells if cell != DEFAULT and cell.dependencies != Dependencies.NEWEST), key=_mixed
    )
    return others[turn % len(others)]


def _mixed(cell: Cell) -> tuple[int, int]:
    same_spark = [each for each in CELLS if each.spark == cell.spark]
    return same_spark.index(cell), SPARKS.index(cell.spark)
