"""`gossamer show` and `gossamer doctor`."""

import json

import pytest

from gossamer.cli import main
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.training import train


def gossamer(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_topology(capsys, tmp_path):
    code, out, _ = gossamer(capsys, "show", "topology", "ring", "--nodes", 8, "--plot", tmp_path / "ring.svg")
    assert code == 0
    assert "0.3524" in out
    assert "not: D^2 needs every eigenvalue" in out
    assert "<svg" in (tmp_path / "ring.svg").read_text()
    code, out, _ = gossamer(capsys, "show", "topology", "star", "--nodes", 5, "--json")
    assert json.loads(out)["edges"] == [[0, 1], [0, 2], [0, 3], [0, 4]]


def test_partition(capsys, tmp_path):
    code, out, _ = gossamer(capsys, "show", "partition", "k-class:k=2", "--plot", tmp_path / "bars.png")
    assert code == 0
    assert "mean label distance 0.773" in out
    assert (tmp_path / "bars.png").read_bytes()[1:4] == b"PNG"
    code, out, _ = gossamer(capsys, "show", "partition", "iid", "--nodes", 3, "--json")
    assert [len(c) for c in json.loads(out)["counts"]] == [10] * 3


def test_method(capsys):
    code, out, _ = gossamer(capsys, "show", "method", "momentum-tracking")
    assert code == 0
    assert "U <- beta U + G" in out
    code, out, _ = gossamer(capsys, "show", "method")
    assert "relaysum-m" in out
    code, out, _ = gossamer(capsys, "show", "method", "--json")
    assert len(json.loads(out)) == 12


def test_run(capsys, tmp_path):
    train(Experiment(rounds=4, evaluations=2, batch_size=16, nodes=4, partition="iid"), tmp_path / "run")
    code, out, _ = gossamer(capsys, "show", "run", tmp_path / "run", "--plot", tmp_path / "curve.pdf")
    assert code == 0
    assert "Momentum Tracking on digits, 4 nodes (simulated), iid, ring, step size 0.01, 4 rounds, seed 0: done" in out
    assert (tmp_path / "curve.pdf").read_bytes()[:4] == b"%PDF"
    code, out, _ = gossamer(capsys, "show", "run", tmp_path / "run", "--json")
    assert [row["round"] for row in json.loads(out)["rows"]] == [0, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "topology", "rng"], "did you mean 'ring'"),
        (["show", "topology", "ring", "--plot", "ring.gif"], "must end in .png, .svg, .pdf"),
        (["show", "partition", "k-class"], "needs k"),
        (["show", "method", "momentum"], "did you mean 'momentum-tracking'"),
        (["show", "run", "nowhere"], "nowhere is not a run"),
    ],
)
def test_bad_input_ends_with_a_sentence_and_code_2(capsys, arguments, words):
    code, _, err = gossamer(capsys, *arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in err


def test_doctor(capsys):
    code, out, _ = gossamer(capsys, "doctor", "--json")
    report = json.loads(out)
    assert code == 0
    assert all(m["passed"] for m in report["methods"].values())
    assert report["environment"]["cores"] >= 1
    assert report["data"]["digits"]
    code, out, _ = gossamer(capsys, "doctor")
    assert "gap to the reference" in out
