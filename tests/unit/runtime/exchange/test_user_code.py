"""What a person reads when their function raised, and whether the job tries again."""

from __future__ import annotations

import json
import pickle
from collections import namedtuple
from importlib import import_module
from types import SimpleNamespace

import pytest

from tidegate.core.errors import CorruptState, UserCodeError
from tidegate.runtime.epochs.failover import Repeat, after_user_error
from tidegate.runtime.exchange.assignment import TaskAssignment
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
    assert "test_user_code.py:23, in parse" in text
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


def by_name(row):
    return row["v"]


def by_index(row):
    return row["v"] + row[1]


@pytest.mark.parametrize("function", [by_name, by_index])
def test_a_row_that_is_read_like_a_dictionary_gets_the_right_spelling(function):
    """Python speaks of tuple indices, which says nothing to somebody who thinks of a row."""
    text = str(report_of(function).told())
    assert "A row is a tuple with names: write row.v instead of row['v']." in text


def test_a_module_that_executors_do_not_have_is_named_with_the_ways_to_get_it_there():
    def imports(row):
        import no_such_package.inner  # noqa: F401

    text = str(report_of(imports).told())
    assert "The Python that runs the tasks has no package 'no_such_package'." in text
    assert "--py-files" in text


class UsesMissingPackage:
    """Unpickles like a function of a module that the worker cannot import."""

    def __init__(self, module):
        self.module = module

    def __reduce__(self):
        return import_module, (self.module,)


def test_a_package_that_is_missing_when_the_functions_are_loaded_gets_the_same_advice():
    program = pickle.dumps(UsesMissingPackage("no_such_package.inner"))
    with pytest.raises(FunctionFailed) as failed:
        TaskAssignment.unpickle(SimpleNamespace(program=program))
    error = find(f"PythonException: {failed.value}")
    text = str(error)
    assert error.fatal
    assert "the functions of the job cannot be loaded on an executor: No module named 'no_such_package'" in text
    assert "The Python that runs the tasks has no package 'no_such_package'. Install it on every executor" in text
    assert text.count("--py-files") == 1
    assert "spark.submit.pyFiles" not in text


def test_a_name_that_an_executors_module_does_not_have_is_told_with_what_to_send():
    program = pickle.dumps(UsesMissingPackage("json")).replace(b"import_module", b"import_modulo")
    with pytest.raises(FunctionFailed, match=r"cannot be loaded on an executor.*import_modulo.*spark\.submit\.pyFiles"):
        TaskAssignment.unpickle(SimpleNamespace(program=program))
