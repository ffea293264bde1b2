"""The report of a check."""

import math

from gossamer.theory import Report, Row

GOOD, BAD = Row("good", 0.5, 0.0, 1.0), Row("a longer name", 2.0, 0.0, 1.0)


def test_a_row_passes_between_its_limits():
    assert GOOD.passed
    assert Row("edge", 1.0, 0.0, 1.0).passed
    assert not BAD.passed
    assert not Row("below", -0.1, 0.0, 1.0).passed
    assert not Row("nan", math.nan, 0.0, 1.0).passed


def test_a_report_passes_when_all_rows_do():
    assert Report((GOOD,)).passed
    report = Report((GOOD, BAD))
    assert not report.passed
    assert report.failures == (BAD,)


def test_the_report_is_a_plain_table():
    assert str(Report((GOOD, BAD), ("A note.",))).splitlines() == [
        "statement      measured  allowed          verdict",
        "good           0.5       between 0 and 1  holds",
        "a longer name  2         between 0 and 1  FAILS",
        "A note.",
    ]
