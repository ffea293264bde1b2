"""A partition: which node holds which samples, and how different the nodes are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gossamer._common import plotting

WIDEST_TABLE = 16
LONGEST_TABLE = 40


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of every node, as indices into the training set.

    `indices[i]`: node i's samples, ascending int64. `validation`: the samples kept for validation. `label_counts`:
    [nodes, classes], how many of each class a node holds. `recipe`: how it was made. Prints as a table.

    >>> import torch
    >>> from gossamer.data.partition import k_class
    >>> print(k_class(nodes=2, k=1, seed=0)(torch.arange(20) % 2))
    node  samples  class 0  1  distance
       0        9        9  -     0.500
       1        9        -  9     0.500
    18 samples on 2 nodes, 2 for validation; mean label distance 0.500 (0 = iid)
    """

    indices: list[Tensor]
    validation: Tensor
    label_counts: Tensor
    recipe: str = ""

    @property
    def sizes(self) -> list[int]:
        """How many samples each node holds."""
        return [len(own) for own in self.indices]

    @property
    def label_distances(self) -> Tensor:
        """Per node the total-variation distance 1/2 sum_c |p_i(c) - p(c)|, p being the labels of all nodes together.

        0: the node's labels are distributed as the whole; near 1: it knows almost nothing of what the others hold.
        """
        counts = self.label_counts.double()
        own = counts / counts.sum(1, keepdim=True)
        whole = counts.sum(0) / counts.sum()
        return (own - whole).abs().sum(1) / 2

    @property
    def label_distance(self) -> float:
        """The mean of `label_distances` over the nodes: label heterogeneity in one number, 0 (iid) to below 1."""
        return float(self.label_distances.mean())

    def plot(self, path: str | Path, class_names: Sequence[str] | None = None) -> Path:
        """Draw one stacked bar per node, one colour per class, into a .png, .svg or .pdf file; returns its path."""
        return plotting.plot("partition", self, path, class_names=class_names)

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<Partition {self.recipe}: {sum(self.sizes)} samples, {len(self.validation)} for validation>"

    def __str__(self) -> str:
        rows = [self._header(), *(self._row(node) for node in range(min(len(self), LONGEST_TABLE)))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        if len(self) > LONGEST_TABLE:
            lines.append(
                f"... and {len(self) - LONGEST_TABLE} more nodes of {min(self.sizes)} to {max(self.sizes)} samples"
            )
        lines.append(
            f"{sum(self.sizes)} samples on {len(self)} nodes, {len(self.validation)} for validation; "
            f"mean label distance {self.label_distance:.3f} (0 = iid)"
        )
        return "\n".join(lines)

    def _header(self) -> list[str]:
        classes = self.label_counts.shape[1]
        labels = (
            [f"class {c}" if c == 0 else str(c) for c in range(classes)] if classes <= WIDEST_TABLE else ["classes"]
        )
        return ["node", "samples", *labels, "distance"]

    def _row(self, node: int) -> list[str]:
        counts = self.label_counts[node]
        per_class = [str(count or "-") for count in counts.tolist()]
        shown = per_class if len(per_class) <= WIDEST_TABLE else [str(int((counts > 0).sum()))]
        return [str(node), str(int(counts.sum())), *shown, f"{self.label_distances[node]:.3f}"]
