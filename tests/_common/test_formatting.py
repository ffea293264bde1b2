"""Figures in words."""

import csv
import io
import math
import unicodedata

from gossamer._common.formatting import duration, mean_std, percent, printable, say, size, word, write_csv


def test_sizes_and_durations_are_readable():
    assert [size(v) for v in (12, 3400, 2.5e6, 7e9, float("nan"))] == ["12 B", "3.4 kB", "2.5 MB", "7 GB", "–"]
    assert [duration(v) for v in (1.234, 89, 600, 7200)] == ["1.23 s", "89 s", "10 min", "2.0 h"]
    assert duration(math.nan) == "–"


def test_a_standard_deviation_has_two_decimals_and_is_left_out_where_there_is_none():
    assert mean_std(0.72, 0.0002, scale=100) == "72.0 ± 0.02"
    assert mean_std(71.1, 0.2) == "71.1 ± 0.20"
    assert mean_std(71.1, 0.0) == "71.1 ± 0.00"
    assert mean_std(71.1, None) == mean_std(71.1, math.nan) == "71.1"
    assert mean_std(None, None) == mean_std(math.nan, 1.0) == percent(None) == "–"


def test_settings_are_short():
    assert [word(v) for v in (0.1, 1e-5, 3, "ring", None)] == ["0.1", "1e-05", "3", "ring", "–"]


def test_nothing_that_steers_a_terminal_is_printed(capsys):
    every = "".join(map(chr, range(0x3000)))
    left = {unicodedata.category(c) for c in printable(every) if c not in "\t\n"}
    assert not left & {"Cc", "Zl", "Zp"}
    assert printable("Zürich – ∇f\t±\n") == "Zürich – ∇f\t±\n"
    say("a\x1b]0;b\x07 \x9b2J \u202egnir \udcff\r")
    assert capsys.readouterr().out == "a\\x1b]0;b\\x07 \\x9b2J \\u202egnir \\udcff\\r\n"


def test_a_spreadsheet_runs_nothing_and_numbers_stay_numbers():
    rows = [["=HYPERLINK(1)", "+a", "-b", "@c", "\td", "e=f"], ["-0.5", "+1", "-1e-05", "-inf", -2, None]]
    file = io.StringIO()
    write_csv(file, rows)
    head, figures = csv.reader(file.getvalue().splitlines())
    assert head == ["'=HYPERLINK(1)", "'+a", "'-b", "'@c", "'\td", "e=f"]
    assert figures == ["-0.5", "+1", "-1e-05", "-inf", "-2", ""]
