"""The published accuracies against rows copied by hand from the paper, and against the averages its text states."""

from collections import Counter
from statistics import mean

import pytest

from gossamer import GossamerError, methods, models, topology
from gossamer.data import partition
from gossamer.data.catalog import CATALOG
from gossamer.experiments.paper.published import cells

ALL = cells()
SIX = ("dsgd", "gradient-tracking", "dsgdm", "qg-dsgdm", "decentlam", "momentum-tracking")


def printed(**wanted) -> list[str]:
    return [str(cell) for cell in cells(**wanted)]


class TestAgainstThePaper:
    @pytest.mark.parametrize(
        ("where", "method", "row"),
        [
            ("fashion-mnist", "dsgd", "85.6 ± 0.49, 85.6 ± 0.41, 82.7 ± 1.12, 78.1 ± 1.56"),
            ("fashion-mnist", "dsgdm", "89.5 ± 0.15, 89.3 ± 0.21, 82.1 ± 3.23, 68.7 ± 5.02"),
            ("fashion-mnist", "qg-dsgdm", "89.6 ± 0.10, 89.5 ± 0.47, 86.9 ± 1.59, 80.8 ± 2.94"),
            ("fashion-mnist", "momentum-tracking", "89.5 ± 0.36, 89.4 ± 0.05, 88.9 ± 0.47, 86.8 ± 1.56"),
            ("svhn", "dsgd", "90.1 ± 0.17, 89.5 ± 0.61, 87.6 ± 1.94, 78.8 ± 8.55"),
            ("svhn", "gradient-tracking", "90.1 ± 0.30, 89.8 ± 0.38, 89.8 ± 0.39, 89.4 ± 0.47"),
            ("svhn", "decentlam", "92.4 ± 0.21, 92.2 ± 0.39, 92.0 ± 0.48, 88.2 ± 4.75"),
            ("svhn", "momentum-tracking", "92.6 ± 0.32, 92.4 ± 0.40, 92.3 ± 0.23, 91.7 ± 0.53"),
            ("cifar-10", "dsgd", "63.1 ± 0.60, 64.1 ± 0.52, 61.2 ± 1.16, 47.6 ± 5.77"),
            ("cifar-10", "gradient-tracking", "62.3 ± 0.73, 62.0 ± 0.80, 61.9 ± 0.58, 61.8 ± 0.82"),
            ("cifar-10", "dsgdm", "72.9 ± 0.41, 72.5 ± 0.20, 63.8 ± 6.24, 38.8 ± 1.61"),
            ("cifar-10", "qg-dsgdm", "72.4 ± 0.87, 73.1 ± 0.16, 69.6 ± 2.42, 55.3 ± 5.30"),
            ("cifar-10", "decentlam", "73.2 ± 0.36, 72.9 ± 0.14, 71.7 ± 1.10, 63.1 ± 5.43"),
            ("cifar-10", "momentum-tracking", "72.9 ± 0.59, 73.0 ± 0.49, 72.6 ± 0.41, 70.7 ± 1.38"),
            ("vgg-11", "dsgd", "91.3 ± 0.12, 86.9 ± 1.75, 71.1 ± 2.82"),
            ("vgg-11", "dsgdm", "92.2 ± 0.09, 77.3 ± 4.05, 39.6 ± 5.92"),
            ("vgg-11", "momentum-tracking", "91.9 ± 0.06, 90.9 ± 0.60, 87.0 ± 0.48"),
            ("resnet-34", "gradient-tracking", "85.9 ± 0.71, 82.6 ± 0.33, 76.2 ± 0.30"),
            ("resnet-34", "qg-dsgdm", "95.8 ± 0.22, 94.3 ± 1.13, 79.9 ± 1.59"),
            ("resnet-34", "decentlam", "95.9 ± 0.04, 95.2 ± 0.51, 89.2 ± 2.26"),
            ("resnet-34", "momentum-tracking", "95.0 ± 0.13, 94.4 ± 0.52, 89.9 ± 0.73"),
        ],
    )
    def test_table_2_by_dataset_and_table_3_by_model(self, where, method, row):
        is_table_2 = where in CATALOG
        found = cells(method=method, **({"table": 2, "dataset": where} if is_table_2 else {"table": 3, "model": where}))
        assert [cell.k for cell in found] == ([10, 8, 6, 4] if is_table_2 else [10, 4, 2])
        assert [str(cell) for cell in found] == row.split(", ")

    def test_table_4_graphs(self):
        hypercube = ", ".join(printed(table=4, topology="hypercube", k=4))
        assert hypercube == "55.9 ± 4.11, 60.2 ± 1.13, 45.0 ± 5.90, 62.9 ± 3.68, 69.1 ± 4.05, 72.7 ± 0.28"
        assert printed(table=4, topology="hypercube", k=10)[:2] == ["63.3 ± 0.65", "61.0 ± 1.34"]
        assert printed(table=4, topology="exponential", method="dsgdm") == ["73.4 ± 0.13", "51.5 ± 7.80"]
        assert printed(table=4, topology="exponential", method="momentum-tracking") == ["72.7 ± 0.33", "72.9 ± 0.07"]

    def test_table_5_dirichlet(self):
        assert printed(table=5, alpha=10) == ["89.7 ± 0.07", "90.1 ± 0.28", "90.5 ± 0.01"]
        assert printed(table=5, alpha=0.1) == ["87.2 ± 1.54", "88.6 ± 0.99", "90.2 ± 0.37"]
        assert {cell.model for cell in cells(table=5)} == {"vgg-11"}

    def test_table_6_initial_values(self):
        assert ", ".join(printed(table=6, hyperparameters={"init": "zero"})) == (
            "89.5 ± 0.38, 89.4 ± 0.04, 88.7 ± 0.63, 85.8 ± 1.53, "
            "92.5 ± 0.34, 92.3 ± 0.50, 92.2 ± 0.29, 92.0 ± 0.81, "
            "72.8 ± 0.35, 72.9 ± 0.32, 73.0 ± 0.41, 70.7 ± 2.00"
        )
        repeated = printed(table=6, hyperparameters={})
        assert repeated == printed(table=2, method="momentum-tracking")

    def test_table_7_relaysum(self):
        assert printed(table=7, method="relaysum") == ["91.1 ± 0.13", "89.0 ± 0.15"]
        assert printed(table=7, method="relaysum-m") == ["92.1 ± 0.13", "89.3 ± 0.76"]
        assert {cell.topology for cell in cells(table=7) if cell.method.startswith("relaysum")} == {None}
        for method in SIX:
            repeated = [str(c) for c in cells(table=3, model="vgg-11", method=method) if c.k != 4]
            assert printed(table=7, method=method) == repeated

    def test_table_8_abm_and_gtadam(self):
        assert printed(table=8, method="abm") == ["71.0 ± 0.20", "71.1 ± 0.20"]
        assert printed(table=8, method="gtadam") == ["71.4 ± 0.56", "67.7 ± 3.20"]
        assert [cell.k for cell in cells(table=8, method="momentum-tracking")] == [10, 4]

    @pytest.mark.parametrize(
        ("k", "better", "worse", "percent"),
        [
            (10, "momentum-tracking", "gradient-tracking", 5.8),
            (4, "momentum-tracking", "gradient-tracking", 4.4),
            (4, "dsgd", "dsgdm", 9.9),
            (4, "momentum-tracking", "dsgd", 14.9),
            (4, "momentum-tracking", "dsgdm", 24.9),
            (4, "momentum-tracking", "qg-dsgdm", 9.9),
            (4, "momentum-tracking", "decentlam", 4.5),
        ],
    )
    def test_the_differences_that_the_text_states(self, k, better, worse, percent):
        """Averages over the three datasets of Table 2, up to the rounding of the cells and of the text."""
        first, second = (mean(cell.mean for cell in cells(table=2, k=k, method=name)) for name in (better, worse))
        assert first - second == pytest.approx(percent, abs=0.1)


class TestTheFile:
    def test_cells_per_table(self):
        assert Counter(cell.table for cell in ALL) == {2: 72, 3: 36, 4: 24, 5: 6, 6: 24, 7: 16, 8: 6}

    def test_no_cell_twice(self):
        keys = Counter(
            (c.table, c.dataset, c.model, c.topology, c.k, c.alpha, c.method, str(c.hyperparameters)) for c in ALL
        )
        assert set(keys.values()) == {1}

    @pytest.mark.parametrize("table", [2, 3, 4])
    def test_every_column_has_the_six_methods(self, table):
        columns = Counter((c.dataset, c.model, c.topology, c.k) for c in cells(table=table))
        assert set(columns.values()) == {6}
        for dataset, model, graph, k in columns:
            found = cells(table=table, dataset=dataset, model=model, topology=graph, k=k)
            assert tuple(cell.method for cell in found) == SIX

    def test_every_name_is_known(self):
        for cell in ALL:
            assert cell.method in methods.BUILT_IN
            methods.get(cell.method, **cell.hyperparameters)
            assert cell.dataset in CATALOG
            assert cell.model in models.names()
            assert cell.topology is None or topology.get(cell.topology, 8).n == 8
            assert cell.partition in partition.names()

    def test_every_value_is_an_accuracy(self):
        for cell in ALL:
            assert 0 < cell.mean < 100
            assert 0 < cell.std < 10
            assert (cell.k is None) == (cell.partition == "dirichlet")
            assert (cell.alpha is None) == (cell.partition == "k-class")


class TestCells:
    def test_a_combination_that_is_not_reported(self):
        assert cells(table=2, method="abm") == []
        assert cells(model="resnet-34", k=8) == []

    @pytest.mark.parametrize(
        ("wish", "sentence"),
        [
            ({"method": "d2"}, "There is no method in the paper's tables 'd2'"),
            ({"dataset": "cifar10"}, "did you mean 'cifar-10'"),
            ({"table": 1}, "The paper's tables have no table 1; they have 2, 3, 4, 5, 6, 7, 8."),
            ({"k": 5}, "The paper's tables have no k 5; they have 2, 4, 6, 8, 10."),
            ({"alpha": "1"}, "The paper's tables have no alpha 1; they have 0.1, 10."),
        ],
    )
    def test_a_value_that_does_not_occur(self, wish, sentence):
        with pytest.raises(GossamerError) as error:
            cells(**wish)
        assert sentence in str(error.value)
