import json
import sys

import pytest

from gossamer.engine import History
from gossamer.errors import GossamerError

ROWS = [{"round": 0, "accuracy": 0.1}, {"round": 5, "accuracy": 0.7}]


def test_columns_rows_and_the_last():
    history = History(list(ROWS))
    assert history["accuracy"] == [0.1, 0.7]
    assert list(history) == ROWS
    assert len(history) == 2
    assert history.last == ROWS[-1]
    with pytest.raises(KeyError, match="there are round, accuracy"):
        history["speed"]


def test_a_figure_of_some_rows_only_is_none_in_the_others():
    history = History([*ROWS, {"round": 9, "validation_accuracy": 0.8}])
    assert history["validation_accuracy"] == [None, None, 0.8]
    assert history["accuracy"] == [0.1, 0.7, None]


def test_json_lines(tmp_path):
    History(list(ROWS)).to_jsonl(tmp_path / "deep" / "metrics.jsonl")
    lines = (tmp_path / "deep" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ROWS


def test_an_empty_history_says_so():
    with pytest.raises(GossamerError, match="Nothing has been evaluated"):
        History().last  # noqa: B018


def test_pandas_or_the_sentence_that_names_it(monkeypatch):
    class Pandas:
        DataFrame = staticmethod(lambda rows: ("frame", rows))

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert History(list(ROWS)).to_pandas() == ("frame", ROWS)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(GossamerError, match=r"gossamer\[data\]"):
        History(list(ROWS)).to_pandas()
