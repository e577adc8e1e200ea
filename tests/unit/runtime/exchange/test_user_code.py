"""What a person reads when their function raised, and whether the job tries again."""

from __future__ import annotations

import json
from collections import namedtuple

import pytest

from tidegate.core.errors import CorruptState, UserCodeError
from tidegate.runtime.driver.failover import Repeat, after_user_error
from tidegate.runtime.exchange.user_code import FunctionFailed, UserErrorReport, decoded, encoded, find

Row = namedtuple("Row", "k v")
BAD = Row("a", 0)


def parse(row: Row) -> int:
    return 10 // row.v


def failed(function, row=BAD, key="a") -> FunctionFailed:
    try:
        function(row)
    except Exception as error:
        return FunctionFailed("divide", error, row, key)
    raise AssertionError("the function did not raise")


def raising(error):
    def function(row):
        raise error

    return function


def report(error=None, row=BAD) -> UserErrorReport:
    return failed(parse if error is None else raising(error), row).report


def test_the_text_names_operator_error_row_key_line_and_what_to_do():
    text = str(report().told(comes_back=True))
    assert "operator 'divide' raised ZeroDivisionError" in text
    assert "row:  (k='a', v=0), key 'a'" in text
    assert "test_user_code.py:19, in parse" in text
    line, caret = [found for found in text.splitlines() if "10 // row.v" in found or set(found.strip()) == {"^"}]
    assert line[caret.index("^") : caret.rindex("^") + 1] == "10 // row.v"
    assert "on_error='skip'" in text


def test_an_error_inside_a_library_shows_the_line_that_called_it():
    text = str(report_of(lambda row: json.loads("{")).told())
    assert 'json.loads("{")' in text
    assert "raised inside json/decoder.py" in text


def report_of(function) -> UserErrorReport:
    return failed(function).report


def test_a_report_survives_its_journey():
    found = report()
    assert decoded(encoded(found)) == found
    assert str(find(f"java.lang.RuntimeException: {FunctionFailed('divide', ValueError('no'))} at …")).startswith(
        "The function of operator 'divide' raised ValueError: no"
    )


def test_a_row_that_cannot_be_shown_does_not_hide_the_error():
    class Shy:
        def __repr__(self):
            raise RuntimeError("no")

    found = FunctionFailed("divide", ValueError("bad"), Shy()).report
    assert found.error == "ValueError: bad"
    assert "cannot be shown" in (found.row or "")


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("x"), AttributeError("x"), NameError("x"), TypeError("x"), NotImplementedError()]
)
def test_a_mistake_in_the_program_is_raised_at_once(error):
    found = after_user_error([report(error)], None)
    assert isinstance(found, UserCodeError)
    assert found.fatal


@pytest.mark.feature("L2")
def test_any_other_error_gets_one_more_try_and_is_fatal_if_the_same_row_fails_again():
    first = report()
    assert isinstance(after_user_error([first], None), Repeat)
    second = after_user_error([report()], [first])
    assert isinstance(second, UserCodeError)
    assert second.fatal


def test_another_row_that_fails_at_the_second_try_is_left_to_the_restart_strategy():
    found = after_user_error([report(row=Row("b", 0))], [report()])
    assert isinstance(found, UserCodeError)
    assert not found.fatal


@pytest.mark.parametrize("error", [ConnectionError("away"), TimeoutError("late"), CorruptState("disk")])
def test_what_lies_outside_the_program_is_left_to_the_restart_strategy_however_often_it_comes(error):
    found = after_user_error([report(error)], [report(error)])
    assert isinstance(found, UserCodeError)
    assert not found.fatal
