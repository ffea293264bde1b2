"""The command line as a user meets it: what it prints, what it writes, and how it refuses."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gossamer import __version__
from gossamer._common.formatting import progress_bar
from gossamer.cli import main
from gossamer.methods import BUILT_IN, FOR_SLOW_LINKS
from tests.processes import start

QUICK = ("--rounds", "20", "--dim", "2", "--zeta2", "25")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Every command runs in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def _no_figures(monkeypatch):
    """Figures take most of the time, and one test looks at them."""
    monkeypatch.setattr("gossamer.report.synthetic.write_report", lambda result, out, command: out / "report.html")


class TestHelp:
    def test_it_lists_the_commands_with_what_they_do(self, gossamer):
        out, err = gossamer("--help")
        assert gossamer()[0] == out, "no command shows the help"
        assert err == ""
        assert "Usage: gossamer COMMAND" in out
        assert "Reproduce the paper's synthetic figures" in out

    def test_the_help_of_a_command_names_its_options_with_their_defaults(self, gossamer):
        text = " ".join(gossamer("synthetic", "--help")[0].split())
        options = "nodes dim lr beta sigma2 zeta2 topology weights rounds seed methods draws out json"
        for option in options.split():
            assert f"--{option}" in text
        assert "[default: 25]" in text
        assert "Example: gossamer synthetic --methods dsgdm,momentum-tracking" in text

    def test_version(self, gossamer):
        assert gossamer("--version")[0] == f"{__version__}\n"

    def test_help_is_quick_because_torch_stays_out(self):
        script = (
            "import sys\nfrom gossamer.cli import main\n"
            "try:\n    main(sys.argv[1:])\nfinally:\n"
            "    print(sorted({'torch', 'numpy', 'matplotlib'} & set(sys.modules)), file=sys.stderr)\n"
        )
        for arguments in (["--help"], ["synthetic", "--nodes", "x"]):
            command = [sys.executable, "-c", script, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.stderr.endswith("[]\n"), arguments


class TestSynthetic:
    def test_the_table_the_figures_the_page_and_the_curves(self, capsys, monkeypatch, tmp_path):
        command = "gossamer synthetic --rounds 20 --dim 2 --nodes 6 --out here --json curves/all.json"
        monkeypatch.setattr(sys, "argv", command.split())
        with pytest.raises(SystemExit, match=r"^0$"):
            main()
        out, err = capsys.readouterr()
        assert err == ""
        lines = out.splitlines()
        head = " ".join(lines[0].split())
        assert head == "method graph zeta² = 0 zeta² = 25 zeta² = 50 closed-form stall seconds"
        assert len([line for line in lines if line.startswith("Momentum Tracking ")]) == 1
        assert "note: D^2 needs a smallest eigenvalue above -1/3 and runs with lazy weights." in lines
        assert lines[-2] == "figures: here/initial_phase.png, here/long_run.png (and .svg)"
        assert lines[-1] == "report: here/report.html"
        assert {p.name for p in Path("here").iterdir()} == {
            f"{stem}.{kind}" for stem in ("initial_phase", "long_run") for kind in ("png", "svg")
        } | {"report.html"}
        assert command in Path("here/report.html").read_text()

        saved = json.loads(Path("curves/all.json").read_text())
        assert saved["config"]["nodes"] == 6
        assert [(c["method"], c["zeta2"]) for c in saved["cells"]] == [
            (m, z) for m in BUILT_IN if m not in FOR_SLOW_LINKS for z in (0.0, 25.0, 50.0)
        ]
        for cell in saved["cells"]:
            assert cell["rounds"] == list(range(21))
            assert len(cell["curve"]) == 21
            assert cell["tail_mean"] == pytest.approx(sum(cell["curve"][-5:]) / 5)

    @pytest.mark.usefixtures("_no_figures")
    def test_options_reach_the_experiment(self, gossamer):
        out, _ = gossamer(
            "synthetic", "--nodes=4", "--dim=3", "--lr=0.002", "--beta=0.5", "--sigma2=0.25", "--zeta2=7, 9,",
            "--topology=random-regular:degree=3", "--weights=lazy", "--rounds=12", "--seed=5", "--draws=2",
            "--methods=dsgd, momentum_tracking ", "--json=x.json",
        )  # fmt: skip
        saved = json.loads(Path("x.json").read_text())
        assert saved["config"] == {
            "nodes": 4, "dim": 3, "lr": 0.002, "beta": 0.5, "sigma2": 0.25, "zeta2": [7.0, 9.0],
            "topology": "random-regular:degree=3", "weights": "lazy", "rounds": 12, "seed": 5, "draws": 2,
            "methods": ["dsgd", "momentum_tracking"],
        }  # fmt: skip
        assert [c["method"] for c in saved["cells"]] == ["dsgd", "dsgd", "momentum-tracking", "momentum-tracking"]
        assert "report: out/synthetic/report.html" in out

    @pytest.mark.usefixtures("_no_figures")
    def test_a_users_own_graph_and_matrix(self, gossamer):
        Path("graph.txt").write_text("0 1\n1 2\n2 0\n")
        Path("weights.csv").write_text("0.5,0.5\n0.5,0.5\n")
        for topology, nodes in (("file:graph.txt", "3"), ("matrix:weights.csv", "2")):
            gossamer("synthetic", *QUICK, "--methods", "dsgd", "--topology", topology, "--nodes", nodes)

    @pytest.mark.usefixtures("_no_figures")
    def test_in_a_process_of_its_own_the_same_figures_come_out(self, gossamer, tmp_path):
        arguments = ["synthetic", *QUICK, "--nodes", "4", "--methods", "momentum-tracking"]
        process = start(tmp_path / "printed", main, [*arguments, "--json", "a.json"])
        process.join(100)
        assert process.exitcode == 0, (tmp_path / "printed").read_text()
        gossamer(*arguments, "--json", "b.json")
        there, here = (json.loads(Path(p).read_text())["cells"][0]["curve"] for p in ("a.json", "b.json"))
        assert there == here


BAD = {
    "a hypercube of 12": (
        ["--topology", "hypercube", "--nodes", "12"],
        "A hypercube has a power of two of nodes, not 12; use 8 or 16.",
    ),
    "an odd number of ends": (
        ["--topology", "random-regular:degree=3", "--nodes", "25"],
        "There is no regular graph of 25 nodes of degree 3, because n times degree counts every edge twice",
    ),
    "beta of 1": (["--beta", "1"], "DSGDm needs 0 <= beta < 1, but beta is 1: at 1 or more the running sum would grow"),
    "a negative step size": (["--lr", "-1"], "The step size must be a finite number above 0, but lr is -1; the paper"),
    "an infinite step size": (["--lr", "inf"], "The step size must be a finite number above 0, but lr is inf; the"),
    "an unknown topology": (["--topology", "rnig"], "There is no topology 'rnig'; did you mean 'ring'? Known: bal"),
    "an unknown method": (
        ["--methods", "dsgd,momentum-trackin"],
        "There is no method 'momentum-trackin'; did you mean 'momentum-tracking'? Known: abm, ",
    ),
    "unknown weights": (["--weights", "laz"], "There is no kind of weights 'laz'; did you mean 'lazy'? Known: fast"),
    "an unknown option": (["--metods", "dsgd"], "Unknown option: --metods. Did you mean --methods? See: gossamer"),
    "an unknown parameter": (
        ["--topology", "random-regular:degre=3"],
        "There is no parameter of random-regular 'degre'; did you mean 'degree'?",
    ),
    "a graph in two parts": (
        ["--topology", "file:parts.txt", "--nodes", "4"],
        "The graph 'parts' is not connected: no path joins node 0 and node 2, so the nodes could never agree; add",
    ),
    "a matrix that is not doubly stochastic": (
        ["--topology", "matrix:bad.csv", "--nodes", "2"],
        "Column 0 of the mixing matrix sums to 1.1, not to 1; gossip keeps the average only if every row and every",
    ),
    "a file that is not there": (["--topology", "file:no.txt"], "There is no file no.txt"),
    "nodes that are no number": (["--nodes", "x"], "--nodes needs a whole number, not 'x'. See: gossamer synthetic --"),
    "half a node": (["--nodes", "2.5"], "--nodes needs a whole number, not '2.5'. See: gossamer synthetic --help"),
    "a step size that is no number": (["--lr", "tiny"], "--lr needs a number, not 'tiny'. See: gossamer synthetic --"),
    "no nodes": (["--nodes", "0"], "The number of nodes must be a whole number of at least 1, not 0."),
    "an option without its value": (["--lr"], 'Command "synthetic" parameter --lr requires an argument. See: gossamer'),
    "an argument too many": (["ring"], "Unexpected argument 'ring'; options begin with --. See: gossamer"),
    "zeta2 that is no list": (["--zeta2", "a,b"], "zeta2 must be numbers separated by commas, not 'a,b'"),
    "no zeta2": (["--zeta2", ","], "zeta2 is empty, so there is nothing to run; give at least one value, such as 25."),
    "a negative variance": (["--sigma2", "-1"], "sigma2 is a variance and cannot be -1; use 0 or more."),
    "a seed beyond all": (["--seed", "9" * 30], "The seed must be a whole number from 0 to 2^62, but it is 999"),
    "relaysum on a ring": (
        ["--methods", "relaysum"],
        "RelaySum needs a tree, because it relays sums along edges and a cycle would count nodes twice, but 'ring' has "
        "a cycle; use chain, star or balanced-tree.",
    ),
    "d2 on an even ring": (
        ["--methods", "d2", "--nodes", "8"],
        "D^2 needs every eigenvalue of the mixing matrix above -1/3, or it diverges, but the smallest of 'ring' is "
        "-0.3333; use lazy weights (I + W)/2: weights='lazy', or topology.lazy().",
    ),
    "decentlam on a schedule": (
        ["--methods", "decentlam", "--topology", "one-peer-exponential"],
        "DecentLaM needs a graph that stays the same, because it diverges on one that changes, but 'one-peer-exp",
    ),
    "a file in the way of the directory": (["--out", "file"], "Cannot write file/report.html: file is a file, not a"),
    "a directory in the way of the file": (["--json", "."], "Cannot write .: Is a directory; choose another place or"),
}  # fmt: skip


class TestBadInput:
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        Path("parts.txt").write_text("0 1\n2 3\n")
        Path("bad.csv").write_text("0.5,0.5\n0.6,0.4\n")
        Path("file").write_text("in the way")

    @pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD.keys())
    def test_one_sentence_on_standard_error_and_exit_code_2(self, arguments, sentence, gossamer):
        out, err = gossamer("synthetic", "--rounds", "20", *arguments, code=2)
        assert err.startswith(f"gossamer: {sentence}")
        assert err.count("\n") == 1
        assert err.endswith((".\n", "--help\n"))
        assert out == ""
        assert not Path("out").exists() or not list(Path("out").rglob("*.png"))

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["sythetic"], 'Unknown command "sythetic". Did you mean "synthetic"?'),
            (["--nonsense"], 'Unknown command "--nonsense".'),
        ],
    )
    def test_outside_of_a_command(self, arguments, sentence, gossamer):
        _, err = gossamer(*arguments, code=2)
        assert err.startswith(f"gossamer: {sentence}")
        assert err.count("\n") == 1
        assert err.endswith("See: gossamer --help\n")

    def test_a_place_where_nothing_can_be_written_is_noticed_before_the_work(self, gossamer):
        """20,000 rounds of all methods would take minutes."""
        _, err = gossamer("synthetic", "--out", "/proc/nowhere", code=2)
        assert err.startswith("gossamer: Cannot write /proc/nowhere/report.html: ")

    def test_a_process_of_its_own_shows_no_traceback(self):
        arguments, sentence = BAD["nodes that are no number"]
        command = [sys.executable, "-m", "gossamer", "synthetic", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"gossamer: {sentence}")


class TestEnds:
    @pytest.mark.usefixtures("_no_figures")
    def test_whole_numbers_may_be_written_as_people_do(self, gossamer):
        numbers = ("--rounds", "2e1", "--nodes", "0_5", "--methods", "dsgd")
        gossamer("synthetic", *QUICK[2:], *numbers, "--json", "x.json")
        config = json.loads(Path("x.json").read_text())["config"]
        assert (config["rounds"], config["nodes"]) == (20, 5)

    def test_control_c_in_the_middle_of_a_run(self, tmp_path):
        command = [sys.executable, "-m", "gossamer", "synthetic", "--rounds", "10000000", "--out", "begun"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            try:
                while not Path("begun").exists():
                    assert running.poll() is None
                    time.sleep(0.05)
                running.send_signal(signal.SIGINT)
                out, err = running.communicate(timeout=60)
            finally:
                running.kill()
        assert (running.returncode, out, err) == (130, "", "gossamer: interrupted; what is finished is kept\n")

    def test_a_reader_that_goes_away_is_no_error_to_shout_about(self):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "gossamer", "--version"]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (1, b"")


class TestProgress:
    def test_it_is_silent_without_a_terminal(self, capsys):
        with progress_bar("work") as advance:
            advance(0.5)
            advance(1.0, "done")
        assert capsys.readouterr() == ("", "")

    def test_without_a_terminal_a_long_computation_prints_a_line_now_and_then(self, capsys, monkeypatch):
        clock = [100.0]
        monkeypatch.setattr("gossamer._common.formatting.time.monotonic", lambda: clock[0])
        with progress_bar("work\x1b") as advance:
            for second in range(0, 151):
                clock[0] = 100.0 + second
                advance(second / 300, f"at {second}")
        with progress_bar("silent", shown=False) as advance:
            clock[0] += 1000
            advance(0.5)
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == [
            "work\\x1b: 20%, at 60, about 4 min left", "work\\x1b: 40%, at 120, about 3 min left"
        ]  # fmt: skip

    def test_on_a_terminal_it_goes_to_standard_error(self, monkeypatch):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with progress_bar("weaving") as advance:
            advance(0.25, "a quarter")
            time.sleep(0.15)
            advance(0.5)
        assert "weaving" in terminal.getvalue()
        assert "a quarter" in terminal.getvalue()
