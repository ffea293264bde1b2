"""`gossamer show` and `gossamer doctor`."""

import json
from dataclasses import fields

import pytest

from gossamer.cli import main
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.training import train
from gossamer.methods import Facts
from gossamer.testing.self_check import SelfCheck


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
    assert ">>>" not in out
    assert "  exact: with full gradients every node reaches the common optimum" in out
    code, out, _ = gossamer(capsys, "show", "method")
    assert "relaysum-m" in out
    code, out, _ = gossamer(capsys, "show", "method", "--json")
    assert len(json.loads(out)) == 12


def test_every_promise_has_its_words():
    switches = {f.name for f in fields(Facts) if f.type is bool}
    assert set(Facts.promises()) == switches - {"starts_with_all_reduce"}


def test_a_method_of_ones_own(capsys, tmp_path):
    own = tmp_path / "own_shown.py"
    own.write_text(
        "from dataclasses import dataclass\nimport gossamer as gs\n\n\n@dataclass(frozen=True, eq=False)\n"
        'class Own(gs.Method):\n    name = "own-shown"\n    facts = gs.Facts(title="Own Shown", sends=0)\n\n'
        "    def step(self, state, x, grad, lr, net, round):\n        x.sub_(lr * grad)\n"
    )
    code, out, _ = gossamer(capsys, "show", "method", "own-shown", "--load", own)
    assert code == 0
    assert "Own Shown" in out
    assert "Own()" not in out
    assert "promises: none" in out
    code, out, _ = gossamer(capsys, "show", "method", "--load", own, "--json")
    (last,) = json.loads(out)[12:]
    assert (last["name"], last["promises"]) == ("own-shown", [])


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
    assert out.splitlines()[-1] == "All 12 methods agree with the reference implementation."


def test_doctor_names_what_is_wrong(capsys, monkeypatch):
    checks = [SelfCheck("dsgd", "ring", 0.0), SelfCheck("dsgdm", "ring", 1.0)]
    monkeypatch.setattr("gossamer.testing.self_check.self_check", lambda: checks)
    code, out, _ = gossamer(capsys, "doctor")
    assert code == 1
    assert out.splitlines()[-1].startswith("dsgdm disagrees with the reference implementation (1 of 2 methods)")
