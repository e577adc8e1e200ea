"""`tidegate explain`: without a network, without Spark, and forgiving about how a code is written."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import traceback

import pytest
from click.testing import CliRunner, Result

from tidegate.control.cli import main
from tidegate.control.explained.error_texts import error_texts
from tidegate.core.errors import TidegateError, UserCodeError
from tidegate.graph.validate import DuplicateUid
from tidegate.storage.errors import ObjectMissing

PROBE = """
import sys
from tidegate.control.cli import main
try:
    main(["explain", "SCHEMA"])
except SystemExit:
    print([name for name in ("pyspark", "pyarrow") if name in sys.modules])
"""


def explain(*codes: str) -> Result:
    return CliRunner().invoke(main, ["explain", *codes])


@pytest.mark.parametrize("written", ["DUPLICATE_UID", "duplicate_uid", "duplicate-uid", "DUPLICATE_UID:"])
def test_a_code_is_found_in_any_spelling(written: str) -> None:
    result = explain(written)
    assert result.exit_code == 0
    assert result.output.startswith("DUPLICATE_UID (DuplicateUid, a GraphError; ")
    for word in ("Causes", "Fix", "Example", 'orders.sink("out", tg.DiscardSink())'):
        assert word in result.output


def test_several_codes_are_explained_one_after_the_other() -> None:
    found = explain("NO_JOB", "SCHEMA").output
    assert found.index("NO_JOB (") < found.index("SCHEMA (")


def test_an_unknown_code_suggests_the_nearest() -> None:
    result = explain("DUPLICATED_UID", "NO_JOB")
    assert result.exit_code == 1
    assert "NO_JOB (" in result.output
    assert "There is no error code DUPLICATED_UID. Did you mean DUPLICATE_UID?" in result.output


def test_without_a_code_all_are_listed_by_family() -> None:
    found = explain().output
    assert all(f"\n  {code} " in found for code in error_texts())
    assert found.index("ConfigurationError: ") < found.index("  OPTION ") < found.index("GraphError: ")


def test_json_has_the_parts_of_an_explanation() -> None:
    document = json.loads(explain("no_job", "nonsense", "-o", "json").output)
    (error,) = document["errors"]
    assert (error["code"], error["family"], error["retryable"]) == ("NO_JOB", "ControlError", False)
    assert error["fix"]
    assert document["unknown"] == ["NONSENSE"]


def test_explain_imports_neither_spark_nor_arrow() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_a_traceback_ends_with_the_command_that_explains_it() -> None:
    shown = "".join(traceback.format_exception(DuplicateUid("out", "a sink", "another sink")))
    assert shown.endswith("rename one of them.\nHelp: tidegate explain DUPLICATE_UID\n")


@pytest.mark.parametrize(
    "error", [TidegateError("lost"), ObjectMissing.of("memory://", "chk-1"), UserCodeError("count", "a KeyError")]
)
def test_a_message_has_no_help_line_and_a_pickled_error_has_it_once(error: TidegateError) -> None:
    assert "Help" not in str(error)
    assert error.__notes__ == [f"Help: tidegate explain {error.code}"]
    if not isinstance(error, UserCodeError):  # Tasks send those as text.
        travelled = pickle.loads(pickle.dumps(error))
        assert (str(travelled), travelled.__notes__) == (str(error), error.__notes__)
