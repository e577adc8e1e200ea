"""What a person reads when their function raised, and whether the job tries again."""

from __future__ import annotations

import json
import pickle
from collections import namedtuple
from importlib import import_module
from types import SimpleNamespace

import pytest

from tidegate.core.errors import CorruptState, UserCodeError, WrongValue
from tidegate.runtime.epochs.failover import Repeat, after_user_error
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.user_code import FunctionFailed, SinkWriteFailed, UserErrorReport, decoded, encoded, find

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
    text = str(report().to_error(repeated=True))
    assert "operator 'divide' raised ZeroDivisionError" in text
    assert "row:  (k='a', v=0), key 'a'" in text
    assert "test_user_code.py:23, in parse" in text
    line, caret = [found for found in text.splitlines() if "10 // row.v" in found or set(found.strip()) == {"^"}]
    assert line[caret.index("^") : caret.rindex("^") + 1] == "10 // row.v"
    assert "on_error='skip'" in text


def test_an_error_inside_a_library_shows_the_line_that_called_it():
    text = str(report_of(lambda row: json.loads("{")).to_error())
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
def test_repeated_errors_outside_the_program_are_left_to_the_restart_strategy(error):
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
    text = str(report_of(function).to_error())
    assert "A row is a tuple with names: write row.v instead of row['v']." in text


Wide = namedtuple("Wide", "user amount")


def by_near_name(row):
    return row["amuont"]


def by_the_name_of_another(row):
    state = (1, 2)
    return state["total"]


def test_a_name_that_is_no_column_gets_no_advice_to_write_it():
    text = str(failed(by_near_name, Wide("ann", 5)).report.to_error())
    assert "There is no column 'amuont'. Did you mean 'amount'? The columns are user, amount." in text
    assert "row.amuont" not in text
    assert "state.total" not in str(report_of(by_the_name_of_another).to_error())


def test_a_value_that_does_not_fit_its_state_shows_key_and_line():
    """It is found when values are encoded, after the last row."""
    wrong = WrongValue(
        "State 'last' was given a value of another type than declared. Cannot store 'text' (str) as int."
    )
    wrong.key = "ann"
    line = '        self.last.update("text")'
    wrong.writes = (("rules.py", 7, "process_element", line), ("rules.py", 9, "on_timer", "self.last.update(1)"))
    text = str(FunctionFailed("totals", wrong).report.to_error())
    assert "operator 'totals' raised WrongValue: State 'last' was given" in text
    assert "  key:  'ann'" in text
    assert '  line: rules.py:7, in process_element\n\n      self.last.update("text")\n      ^^^^' in text
    assert "Also written in rules.py:9." in text


def test_error_distinguishes_a_missing_submodule_from_a_missing_package():
    def imports(row):
        import json.no_such_part  # noqa: F401

    text = str(report_of(imports).to_error())
    assert "has a package 'json', but no module 'json.no_such_part' in it" in text
    assert "Install the same version there as here" in text


def test_a_module_that_executors_do_not_have_is_named_with_the_ways_to_get_it_there():
    def imports(row):
        import no_such_package.inner  # noqa: F401

    text = str(report_of(imports).to_error())
    assert "The Python that runs the tasks has no package 'no_such_package'." in text
    assert "(spark.submit.pyFiles for modules, spark.archives for an environment)" in text
    assert "--py-files" not in text


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
    assert "functions of the job cannot be loaded on an executor: No module named 'no_such_package'" in text
    assert "The Python that runs the tasks has no package 'no_such_package'. Install it on every executor" in text
    assert text.count("spark.submit.pyFiles") == 1
    assert text.startswith("The functions of the job cannot be loaded on an executor: No module named")
    assert "(all)" not in text
    assert "GraphError" not in text


def test_error_for_a_name_missing_in_an_executors_module_says_what_to_send():
    program = pickle.dumps(UsesMissingPackage("json")).replace(b"import_module", b"import_modulo")
    with pytest.raises(FunctionFailed, match=r"cannot be loaded on an executor.*import_modulo.*spark\.submit\.pyFiles"):
        TaskAssignment.unpickle(SimpleNamespace(program=program))


def cannot_write(error: Exception) -> FunctionFailed:
    try:
        raise error
    except Exception as raised:
        return FunctionFailed("out", raised, target="json files in /x/out")


@pytest.mark.parametrize("repeated", [False, True])
def test_a_sink_that_cannot_write_is_named_with_its_target_and_the_job_may_restart(repeated: bool):
    report = decoded(encoded(cannot_write(NotADirectoryError("/x/out is a file")).report))
    error = report.to_error(repeated)
    assert isinstance(error, SinkWriteFailed)
    assert str(error).startswith("Sink 'out' cannot write json files in /x/out: NotADirectoryError: /x/out is a file")
    assert "Make the target writable" in str(error)
    assert (error.fatal, error.retryable) == (False, True)


def test_a_mistake_in_a_sink_is_shown_with_its_line_and_ends_the_job():
    error = cannot_write(TypeError("no such argument")).report.to_error()
    assert isinstance(error, SinkWriteFailed)
    assert error.fatal
    assert "test_user_code.py" in str(error)
    assert "Correct the sink" in str(error)


def test_an_error_of_a_sink_is_found_in_the_text_of_an_error_of_spark():
    found = find(f"org.apache.spark.SparkException: … {cannot_write(OSError('disk full'))} …")
    assert isinstance(found, SinkWriteFailed)
    assert found.sink == "out"
