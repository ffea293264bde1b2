"""A TOML file becomes experiments, or a sentence that names file, key and remedy."""

import pytest

from gossamer import GossamerError
from gossamer.experiments.grid import Grid, read_experiment, read_grid


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "grid.toml"
        path.write_text(text)
        return path

    return write


def test_a_list_is_an_axis_and_the_last_key_changes_fastest(write):
    grid = read_grid(write('name = "t"\ntitle = "T"\nmethod = ["dsgd", "dsgdm"]\nlr = [0.1, 1]\nnodes = 4\n'))
    assert [(e.method, e.lr, e.nodes) for e in grid.experiments] == [
        ("dsgd", 0.1, 4), ("dsgd", 1.0, 4), ("dsgdm", 0.1, 4), ("dsgdm", 1.0, 4)
    ]  # fmt: skip
    assert (grid.name, grid.title, grid.description) == ("t", "T", "")
    assert grid.source.endswith("grid.toml")


def test_equal_experiments_are_kept_once():
    grid = Grid.from_dict({"method": ["dsgdm", "DSGDm:beta=0.9"], "lr": [0.1, 0.1]})
    assert len(grid.experiments) == 1


def test_overrides_come_after_the_expansion(write):
    path = write(
        'method = ["dsgd", "d2", "relaysum", "momentum-tracking:beta=0.5"]\nlr = [0.1, 0.01]\nseed = [0, 1]\n'
        '[[override]]\nwhen = {method = "relaysum"}\nset = {topology = "chain"}\n'
        '[[override]]\nwhen = {method = "D2", seed = [0, 1]}\nset = {weights = "lazy"}\n'
        '[[override]]\nwhen = {method = "momentum_tracking", model = "small-cnn"}\nset = {lr = [0.3, 0.2, 0.1]}\n'
    )
    found = {}
    for e in read_grid(path).experiments:
        found.setdefault((e.method, e.topology, e.weights), set()).add(e.lr)
    assert found == {
        ("dsgd", "ring", "metropolis"): {0.1, 0.01},
        ("d2", "ring", "lazy"): {0.1, 0.01},
        ("relaysum", "chain", "metropolis"): {0.1, 0.01},
        ("momentum-tracking:beta=0.5", "ring", "metropolis"): {0.1, 0.2, 0.3},
    }


def test_flags_win_over_the_file_and_none_means_not_given(write):
    path = write("lr = [0.1, 0.2]\nnodes = 4\n")
    assert [(e.lr, e.nodes, e.seed) for e in read_grid(path, lr=0.5, nodes=None, seed=[1, 2]).experiments] == [
        (0.5, 4, 1), (0.5, 4, 2)
    ]  # fmt: skip
    assert read_experiment(path, lr=0.5).lr == 0.5


def test_one_experiment_is_not_a_sweep(write):
    assert read_experiment(write("lr = 0.5\n")).lr == 0.5
    with pytest.raises(GossamerError, match=r"grid\.toml describes 2 experiments: that is a sweep; use gossamer sweep"):
        read_experiment(write("lr = [0.5, 0.1]\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("methud = 'dsgd'", "grid.toml: There is no key 'methud'; did you mean 'method'?"),
        ("lr = [0.1, 'x']", "grid.toml: lr must be a number, not 'x'"),
        ("lr = [[0.1]]", "grid.toml: lr must be a number, not [0.1]"),
        ("lr = []", "grid.toml: lr is an empty list; give it at least one value"),
        ("nodes = 0", "grid.toml: nodes must be at least 1"),
        ("name = 3", "grid.toml: name must be text in quotes, not 3"),
        ("slurm = 3", "[slurm] must be a table"),
        ("lr = 0.1\nnodes 4", "grid.toml, line 2, column 7: Expected '='"),
        ("lr = [0.1", "Unclosed array; write key = value"),
        ("method = ['dsgd', 'dsgdx']", "grid.toml: with method = \"dsgdx\": There is no method 'dsgdx'; did you mean"),
        ("method = ['dsgd', 'd2']", 'grid.toml: with method = "d2": D^2 needs every eigenvalue'),
        ("method = ['dsgd', 'd2']", "An [[override]] can change this combination."),
        ("method = 'd2'", "use lazy weights"),
        ("override = 3", "grid.toml: override must be a list of tables"),
        ("[[override]]\nwhen = {method = 'dsgd'}", "grid.toml: override 1 needs a when and a set, as in"),
        ("[[override]]\nwhen = {methd = 'dsgd'}\nset = {lr = 1}", "override 1: There is no key 'methd'"),
        ("[[override]]\nwhen = {method = 'dsgt'}\nset = {lr = 1}", "override 1: There is no method 'dsgt'"),
        ("[[override]]\nwhen = {method = 'dsgd'}\nset = {lr = 'a'}", "override 1: lr must be a number"),
        ("[[override]]\nwhen = {method = 'dsgd'}\nsett = {lr = 1}", "override 1: There is no key 'sett'; did you mean"),
        ("[[override]]\nwhen = 3\nset = {lr = 1}", "override 1: when must be a table"),
        ("[[override]]\nwhen = {method = 'dsgd'}\nset = {lr = 1}", "override 1 applies to no experiment"),
        (f"lr = 1{'0' * 400}", "lr has 401 digits; give a number below 1e308"),
        (f"nodes = {2**63}", "nodes must be at most 1,000,000, but it is 9,223,372,036,854,775,808"),
        ('topology = "file:a\\u0000b"', "topology holds a null character"),
        ('name = "a\\u0000b"', "name holds a null character"),
        ("nodes = 1979-05-27", "nodes must be a whole number"),
        (f"seed = {'9' * 5000}", "has a number of thousands of digits, or brackets nested too deeply"),
        (f"seed = {'[' * 2000}", "has a number of thousands of digits, or brackets nested too deeply"),
        (f"seed = {list(range(1001))}\nbatch_size = {list(range(1, 1001))}", "this grid has 1,001,000 points"),
        (
            f"seed = {list(range(1001))}\n[[override]]\nwhen = {{nodes = 8}}\nset = {{lr = {[1.0] * 1000}}}",
            "this grid has 1,001,000 points, and at most 1,000,000 can be made at once",
        ),
    ],
)
def test_mistakes_name_file_key_and_remedy(write, text, words):
    with pytest.raises(GossamerError) as caught:
        read_grid(write(text))
    assert words in str(caught.value)


def test_what_is_given_wins_over_an_override(write):
    path = write('method = "dsgd"\n[[override]]\nwhen = {method = "dsgd"}\nset = {lr = 0.3, rounds = 7, nodes = 4}\n')
    experiment = read_experiment(path, lr=0.01, rounds=0, epochs=2.0)
    assert (experiment.lr, experiment.rounds, experiment.epochs, experiment.nodes) == (0.01, 0, 2.0, 4)


def test_overrides_are_advised_only_where_a_file_could_hold_one_and_it_would_help(write):
    for wrong in (
        lambda: read_grid(write("method = ['dsgd', 'dsgdx']")),
        lambda: Grid.from_dict({"method": ["d2", "dsgd"]}),
    ):
        with pytest.raises(GossamerError) as caught:
            wrong()
        assert "[[override]]" not in str(caught.value)


def test_a_byte_order_mark_changes_nothing(tmp_path):
    (tmp_path / "grid.toml").write_text("nodes = 4", encoding="utf-8-sig")
    assert read_experiment(tmp_path / "grid.toml").nodes == 4


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(GossamerError, match="There is no file"):
        read_grid(tmp_path / "nowhere.toml")
    with pytest.raises(GossamerError, match="Cannot read"):
        read_grid(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(GossamerError, match="not a text file in UTF-8"):
        read_grid(tmp_path / "latin.toml")
