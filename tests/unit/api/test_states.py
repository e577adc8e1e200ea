"""State is declared on the class, known without running, and there only in a running job."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tidegate as tg
from tidegate.api.states import declared_states
from tidegate.core.errors import GraphError, StateUnbound, UnsupportedType, WrongValue
from tidegate.graph.states import Distribution, StateKind, StateSpec


class Counting(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)
    hidden = tg.ValueState(str)

    def process_element(self, row: Any, ctx: Any) -> None:
        self.n.update(self.n.value() + 1)


class Remembering(Counting):
    seen = tg.MapState(str, float)
    last = tg.ListState(str)
    hidden = None  # type: ignore[assignment]


@pytest.mark.feature("A6", "A23")
def test_states_are_known_without_running() -> None:
    assert declared_states(Remembering()) == (
        StateSpec(name="n", kind=StateKind.VALUE, value=int, default=0),
        StateSpec(name="seen", kind=StateKind.MAP, value=float, map_key=str),
        StateSpec(name="last", kind=StateKind.LIST, value=str),
    )


@pytest.mark.feature("A23")
def test_on_the_class_it_is_the_declaration() -> None:
    assert isinstance(Counting.n, tg.ValueState)
    assert repr(Counting.n) == "<ValueState[int] = 0>"


@pytest.mark.feature("A9")
@pytest.mark.parametrize("name", ["n", "seen", "last"])
def test_there_is_no_state_outside_a_job(name: str) -> None:
    with pytest.raises(StateUnbound, match=f"State '{name}' of Remembering was used where there is no key"):
        getattr(Remembering(), name)


@pytest.mark.feature("A23")
def test_a_copy_is_bound_and_the_original_is_not() -> None:
    class Accessor:
        def value(self) -> int:
            return 41

        def update(self, value: int) -> None:
            self.written = value

    function, accessor = Counting(), Accessor()
    bound: Any = copy.copy(function)
    bound.n = accessor
    bound.process_element(None, None)
    assert accessor.written == 42
    with pytest.raises(StateUnbound):
        function.process_element(None, None)


def test_a_function_travels_with_its_declarations() -> None:
    back = pickle.loads(pickle.dumps(Remembering()))
    assert declared_states(back) == declared_states(Remembering())


@pytest.mark.parametrize(
    ("declare", "error", "says"),
    [
        (
            lambda: tg.ValueState(object),
            UnsupportedType,
            r"ValueState\(object\) does not say how its values are stored",
        ),
        (lambda: tg.ListState(list), UnsupportedType, "Name the types inside"),
        (lambda: tg.MapState(list[int], int), UnsupportedType, "cannot be a key"),
        (lambda: tg.ValueState(int, default="0"), WrongValue, "cannot have this default"),
    ],
)
def test_a_wrong_declaration_fails_where_it_stands(declare: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        declare()


@pytest.mark.feature("A25")
def test_operator_state_is_a_list_or_the_broadcast_map() -> None:
    found = [
        (spec.kind, spec.distribution)
        for spec in (
            tg.ListState(int, operator=True).spec("a"),
            tg.ListState(int, union=True).spec("b"),
            tg.BroadcastState(str, int).spec("c"),
        )
    ]
    assert found == [
        (StateKind.LIST, Distribution.SPLIT),
        (StateKind.LIST, Distribution.UNION),
        (StateKind.MAP, Distribution.BROADCAST),
    ]


@pytest.mark.feature("A25")
@pytest.mark.parametrize("where", [{"operator": True}, {"union": True}])
def test_operator_state_takes_no_other_kinds_time_to_live_or_windows(where: Any) -> None:
    for kind, given in ((tg.ValueState, (int,)), (tg.MapState, (str, int)), (tg.ReducingState, (int, max))):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            kind(*given, **where)  # type: ignore[operator]
    with pytest.raises(GraphError, match="has no time to live"):
        tg.ListState(int, ttl="1 h", **where)
    with pytest.raises(GraphError, match="knows no windows"):
        tg.ListState(int, **where).per_window()


@pytest.mark.feature("A6")
def test_what_a_snapshot_keeps() -> None:
    assert StateSpec(name="s", kind=StateKind.MAP, value=int, map_key=str).describe() == {
        "kind": "map",
        "map_key": {"type": "str"},
        "value": {"type": "int"},
    }
