"""Operators without a task."""

from __future__ import annotations

import pytest

from tidegate.graph.model import Input, NodeId, Transform
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.transform_operator import TransformOperator, as_rows
from tidegate.schema.columns import struct_class
from tidegate.schema.schema import Schema

SCHEMA = Schema.parse("a int")


def operator(kind, function, out):
    node = Transform(id=NodeId(0), kind=kind, function=function, input=Input((), SCHEMA), schema=SCHEMA, name=kind)
    return TransformOperator(node, FunctionContext(kind, 0, 1), out.extend)


@pytest.mark.parametrize("kind", ["map", "filter", "flat_map"])
def test_a_stop_iteration_out_of_a_function_is_an_error_and_not_the_end(kind):
    def trips(row):
        return next(iter(())) if row.a == 3 else [row]

    out: list = []
    with pytest.raises(FunctionFailed, match="StopIteration"):
        operator(kind, trips, out).accept([(n,) for n in range(10)])
    assert out == []


def test_rows_of_several_forms_in_one_list():
    row = struct_class(SCHEMA.fields)
    assert as_rows([(1,), {"a": 2}, row(3)], SCHEMA, row) == [(1,), (2,), (3,)]
