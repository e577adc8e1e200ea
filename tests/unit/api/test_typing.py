"""The editor knows the types of state and rows. mypy is asked, as a user's project would ask it."""

from __future__ import annotations

from pathlib import Path
from types import new_class
from typing import Any

import pytest

import tidegate as tg

CONFIG = """
[mypy]
strict = True
follow_imports = silent
[mypy-pyspark.*,pyarrow.*,numpy.*,msgspec.*,tidegate.runtime.*,tidegate.connectors.*,tidegate.testing.*]
follow_imports = skip
ignore_missing_imports = True
"""

SNIPPET = """
from collections.abc import Iterable
from typing import Any, assert_type
import tidegate as tg

class F(tg.KeyedProcessFunction):
    total = tg.ValueState(float, default=0.0)
    name = tg.ValueState(str)
    last = tg.ListState(tuple[str, int])
    seen = tg.MapState(str, int)
    loose = tg.ValueState(int | None)

    def process_element(self, row: Any, ctx: Any) -> Iterable[tuple[str, float]]:
        assert_type(self.total.value(), float)
        assert_type(self.name.value(), str | None)
        assert_type(self.last.get(), Iterable[tuple[str, int]])
        assert_type(self.seen.get("a"), int | None)
        assert_type(self.seen["a"], int)
        assert_type(self.loose.value(), Any)
        assert_type(F.total, tg.ValueState[float])
        for key, value in self.seen.items():
            assert_type((key, value), tuple[str, int])
        self.total.update(1.5)
        yield "a", self.total.value()

    def wrong(self) -> None:
        self.total.update("much")
        self.seen.put(1, 1)
"""


@pytest.mark.large
def test_types_in_the_editor(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    # What the snippet does not need is left unread, or mypy would read all of Spark's stubs first.
    config = tmp_path / "mypy.ini"
    config.write_text(CONFIG)
    out, err, _ = api.run([f"--config-file={config}", f"--cache-dir={tmp_path / 'cache'}", str(snippet)])
    errors = [line.split("error: ")[1] for line in out.splitlines() if "error: " in line]
    assert [line.partition(";")[0] for line in errors] == [
        'Argument 1 to "update" of "ValueAccess" has incompatible type "str"',
        'Argument 1 to "put" of "MapAccess" has incompatible type "int"',
    ], out + err


@pytest.mark.parametrize(
    "base",
    [
        tg.KeyedProcessFunction,
        tg.KeyedCoProcessFunction,
        tg.KeyedBroadcastProcessFunction,
        tg.ProcessJoinFunction,
        tg.ProcessWindowFunction,
        tg.AggregateFunction,
    ],
)
def test_a_class_may_name_only_the_first_types_of_its_base(base: Any) -> None:
    """As type checkers allow it: the others have defaults."""
    types = len(base.__parameters__)
    for given in range(1, types + 1):
        assert issubclass(new_class("Mine", (base[(int,) * given],)), base)
    with pytest.raises(TypeError, match="Too many"):
        base[(int,) * (types + 1)]
