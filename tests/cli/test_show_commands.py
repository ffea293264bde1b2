"""`gossamer show` and `gossamer doctor`."""

import json
import re
import socket
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import numba
import pytest
from torch.distributed import TCPStore

from gossamer.cli.doctor import EXTRAS
from gossamer.engine import gradients
from gossamer.engine.gradients import compiled
from gossamer.engine.gradients.compiled import form_of
from gossamer.engine.gradients.compiled.compilation import cache_directory
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.training import train
from gossamer.links import listeners
from gossamer.methods import Facts
from gossamer.testing.self_check import SelfCheck


def test_topology(gossamer, tmp_path):
    out, _ = gossamer("show", "topology", "ring", "--nodes", 8, "--plot", tmp_path / "ring.svg")
    assert "0.3524" in out
    assert "not: D^2 needs every eigenvalue" in out
    assert "<svg" in (tmp_path / "ring.svg").read_text()
    out, _ = gossamer("show", "topology", "star", "--nodes", 5, "--json")
    assert json.loads(out)["edges"] == [[0, 1], [0, 2], [0, 3], [0, 4]]


def test_partition(gossamer, tmp_path):
    out, _ = gossamer("show", "partition", "k-class:k=2", "--plot", tmp_path / "bars.png")
    assert "mean label distance 0.773" in out
    assert (tmp_path / "bars.png").read_bytes()[1:4] == b"PNG"
    out, _ = gossamer("show", "partition", "iid", "--nodes", 3, "--json")
    assert [len(c) for c in json.loads(out)["counts"]] == [10] * 3


def test_method(gossamer):
    out, _ = gossamer("show", "method", "momentum-tracking")
    assert "U <- beta U + G" in out
    assert ">>>" not in out
    assert "  exact: with full gradients every node reaches the common optimum" in out
    out, _ = gossamer("show", "method")
    assert "relaysum-m" in out
    out, _ = gossamer("show", "method", "--json")
    assert len(json.loads(out)) == 19


def test_every_promise_has_its_words():
    switches = {f.name for f in fields(Facts) if f.type is bool}
    assert set(Facts.promises()) == switches - {"starts_with_all_reduce", "compresses"}


def test_a_method_of_ones_own(gossamer, tmp_path):
    own = tmp_path / "own_shown.py"
    own.write_text(
        "from dataclasses import dataclass\nimport gossamer as gs\n\n\n@dataclass(frozen=True, eq=False)\n"
        'class Own(gs.Method):\n    name = "own-shown"\n    facts = gs.Facts(title="Own Shown", sends=0)\n\n'
        "    def step(self, state, x, grad, lr, net, round):\n        x.sub_(lr * grad)\n"
    )
    out, _ = gossamer("show", "method", "own-shown", "--load", own)
    assert "Own Shown" in out
    assert "Own()" not in out
    assert "promises: none" in out
    out, _ = gossamer("show", "method", "--load", own, "--json")
    (last,) = json.loads(out)[19:]
    assert (last["name"], last["promises"]) == ("own-shown", [])


def test_run(gossamer, tmp_path):
    train(Experiment(rounds=4, evaluations=2, batch_size=16, nodes=4, partition="iid"), tmp_path / "run")
    out, _ = gossamer("show", "run", tmp_path / "run", "--plot", tmp_path / "curve.pdf")
    assert "Momentum Tracking on digits, 4 nodes (simulated), iid, ring, step size 0.01, 4 rounds, seed 0: done" in out
    assert (tmp_path / "curve.pdf").read_bytes()[:4] == b"%PDF"
    out, _ = gossamer("show", "run", tmp_path / "run", "--json")
    assert [row["round"] for row in json.loads(out)["rows"]] == [0, 2, 4]
    assert "test samples" not in gossamer("show", "run", tmp_path / "run")[0]
    (tmp_path / "run" / "done.json").unlink()
    assert "test samples" in gossamer("show", "run", tmp_path / "run")[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "topology", "rng"], "did you mean 'ring'"),
        (["show", "topology", "ring", "--plot", "ring.gif"], "must end in .png, .svg, .pdf"),
        (["show", "partition", "k-class"], "needs k"),
        (["show", "method", "momentum"], "did you mean 'momentum-tracking'"),
        (["show", "run", "nowhere"], "nowhere is not a run"),
        (["show", "run", "a", "b c"], "to compare several: gossamer report a 'b c' -o report.html"),
    ],
)
def test_bad_input_ends_with_a_sentence_and_code_2(gossamer, arguments, words):
    _, err = gossamer(*arguments, code=2)
    assert words in err
    assert "Traceback" not in err


def test_doctor_says_nothing_of_a_commit_where_there_is_none(gossamer, monkeypatch):
    for commit, shown in ((None, False), ("0123456789ab", True)):
        monkeypatch.setattr("gossamer.experiments.training._commit", lambda commit=commit: commit)
        monkeypatch.setattr(
            "gossamer.cli.doctor._kernels", lambda: {"form": "", "why_not_compiled": "x", "cache": None}
        )
        monkeypatch.setattr("gossamer.testing.self_check.self_check", lambda: [])
        out, _ = gossamer("doctor")
        assert ("commit" in out) is shown
        assert "None" not in out


def test_doctor_knows_the_modules_of_every_extra():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    named = everything.removeprefix("gossamer[").removesuffix("]").split(",")
    modules = {extra: {re.match(r"[\w-]+", need)[0].replace("-", "_") for need in extras[extra]} for extra in named}
    assert {extra: set(names) for extra, names in EXTRAS.items()} == modules


def test_doctor(gossamer):
    out, _ = gossamer("doctor", "--json")
    report = json.loads(out)
    assert all(m["passed"] for m in report["methods"].values())
    assert report["environment"]["cores"] >= 1
    assert report["data"]["digits"]
    assert report["environment"]["numba"] == numba.__version__
    kernels = {"form": form_of("float32"), "why_not_compiled": None, "cache": str(cache_directory())}
    assert report["kernels"] == kernels
    out, _ = gossamer("doctor")
    assert f"agree with torch ({kernels['form']})" in out
    assert kernels["cache"] in out
    assert "gap to the reference" in out
    assert out.splitlines()[-1] == "All 19 methods agree with the reference implementation."


def test_doctor_shows_which_ports_of_torch_strangers_may_reach(gossamer, monkeypatch):
    if not listeners.can_look():
        pytest.skip("what listens is read from /proc")
    monkeypatch.setattr(listeners, "has_rules", lambda: False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "wg7\x1b[2J")
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with socket.create_server(("127.0.0.1", 0)) as local:
        local_port = local.getsockname()[1]
        seen = json.loads(gossamer("doctor", "--network", "--json")[0])
        out, _ = gossamer("doctor", "--network")
    by_port = {one["port"]: one for one in seen["listeners"]}
    assert (by_port[store.port]["torch"], by_port[store.port]["interface"]) == (True, "")
    assert by_port[local_port]["interface"] == "lo"
    assert seen["environment"]["GLOO_SOCKET_IFNAME"] == "wg7\x1b[2J"
    warned = [w for w in seen["warnings"] if f"torch's store listens on port {store.port} of all interfaces" in w]
    assert len(warned) == 1
    assert "run code" in warned[0]
    assert f"warning: {warned[0]}" in out
    assert "GLOO_SOCKET_IFNAME names the interface 'wg7\\x1b[2J', which this machine does not have" in out
    assert "firewall rules of gossamer links: not loaded" in out
    monkeypatch.setattr(listeners, "has_rules", lambda: True)  # of ports in the rules nobody need be warned
    assert store.port > 32767
    assert not [w for w in json.loads(gossamer("doctor", "--network", "--json")[0])["warnings"] if "listens on" in w]


@pytest.mark.parametrize(
    ("coordinator", "interface", "sentence"),
    [
        (True, "eth0", "gossamer coordinator listens on port 29510 of eth0 (7: python): whoever reaches it can join"),
        (True, "", "gossamer coordinator listens on port 29510 of all interfaces"),
        (False, "eth0", "gloo listens on port 29510 of eth0"),
    ],
)
def test_doctor_tells_the_coordinator_from_gloo(monkeypatch, coordinator, interface, sentence):
    monkeypatch.setattr(listeners, "has_rules", lambda: False)
    one = listeners.Listener("192.0.2.1", 29510, interface, "7: python", torch=True, coordinator=coordinator)
    assert listeners.warnings([one])[0].startswith(sentence)


def test_doctor_says_where_it_cannot_look(gossamer, monkeypatch):
    monkeypatch.setattr(listeners, "can_look", lambda: False)
    assert "lsof -nP -iTCP -sTCP:LISTEN" in gossamer("doctor", "--network")[0]


def test_doctor_names_what_is_wrong(gossamer, monkeypatch):
    checks = [SelfCheck("dsgd", "ring", 0.0), SelfCheck("dsgdm", "ring", 1.0)]
    monkeypatch.setattr("gossamer.testing.self_check.self_check", lambda: checks)
    out, _ = gossamer("doctor", code=1)
    assert out.splitlines()[-1].startswith("dsgdm disagrees with the reference implementation (1 of 2 methods)")


def without_numba(patch):
    patch.setitem(sys.modules, "numba", None)


def with_its_switch(patch):
    patch.setattr(numba.config, "DISABLE_JIT", 1)


def with_wrong_kernels(patch):
    patch.setattr(compiled, "_disagreement", lambda *_: "their loss is 1, torch's 2")


def with_an_old_processor(patch):
    patch.setattr(compiled, "_has_fused_products", lambda: False)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (without_numba, "numba is not installed: pip install 'gossamer[fast]'"),
        (with_its_switch, "NUMBA_DISABLE_JIT is set"),
        (with_wrong_kernels, "not through the compiled kernels: their loss is 1, torch's 2."),
        (with_an_old_processor, "no fused multiply-add"),
    ],
)
def test_doctor_says_why_kernels_are_not_used(gossamer, monkeypatch, prepare, words):
    prepare(monkeypatch)
    gradients._numba_is_installed.cache_clear()
    try:
        report = json.loads(gossamer("doctor", "--json")[0])
        out, _ = gossamer("doctor")
    finally:
        gradients._numba_is_installed.cache_clear()
    assert report["kernels"]["form"] == "autograd"
    assert words in report["kernels"]["why_not_compiled"]
    assert f"Reason: {report['kernels']['why_not_compiled']}" in out
    assert ("fast" in report["missing"]) is (prepare is without_numba)


def test_names_do_not_steer_the_terminal(gossamer, tmp_path):
    own = tmp_path / "own_escapes.py"
    own.write_text(
        "from dataclasses import dataclass\nimport gossamer as gs\n\n\n@dataclass(frozen=True, eq=False)\n"
        'class Own(gs.Method):\n    """\\x1b]0;x\\x07"""\n    name = "own-escapes"\n'
        '    facts = gs.Facts(title="Own\\x1b[2J", sends=0)\n\n'
        "    def step(self, state, x, grad, lr, net, round):\n        x.sub_(lr * grad)\n"
    )
    hostile = tmp_path / "runs\x1b[2J"
    outputs = [
        gossamer("show", "method", "own-escapes", "--load", own),
        gossamer("show", "method", "--load", own),
        gossamer("show", "topology", "ring\x1b[2J", code=2),
        gossamer("run", "--load", own, "--method", "own-escapes", "--rounds", 2, "--lr", 0.1, "--out", hostile / "a"),
        gossamer("show", "run", hostile / "a"),
        gossamer("report", hostile, "--out", tmp_path / "report.html"),
    ]
    assert any("Own\\x1b[2J" in out for out, _ in outputs)
    assert not any("\x1b" in out + err for out, err in outputs)
    # Log messages too. In this process they go to pytest.
    (hostile / "a" / "run.json").write_text("{")
    command = [sys.executable, "-m", "gossamer", "export", hostile, "-o", tmp_path / "runs.csv"]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "runs\\x1b[2J" in told
    assert "\x1b" not in told
