"""Several runs of pytest are summed up as one."""

from __future__ import annotations

from tests.tiers.summary import Summary

ONE = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_x" time="0.5"/>
<testcase classname="tests.unit.test_a" name="test_y" time="3.0"><failure message="no"/></testcase>
<testcase classname="tests.unit.test_a" name="test_z" time="0.0"><skipped/></testcase>
</testsuite></testsuites>"""
TWO = (
    '<testsuites><testsuite><testcase classname="tests.unit.test_b" name="test_x" time="1.0"/></testsuite></testsuites>'
)


def test_counts_are_added_and_the_closing_line_is_that_of_pytest(tmp_path):
    summary = Summary()
    for number, text in enumerate((ONE, TWO)):
        file = tmp_path / f"{number}.xml"
        file.write_text(text)
        summary.add(file)
    assert summary.closing_line(3725.0).strip("=") == " 1 failed, 2 passed, 1 skipped in 3725.00s (1:02:05) "
    assert summary.slowest(2) == [("tests/unit/test_a::test_y", 3.0), ("tests/unit/test_b::test_x", 1.0)]
    assert summary.failed == ["FAILED tests/unit/test_a::test_y"]
