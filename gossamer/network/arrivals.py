"""What is made of the messages of a round once they have arrived."""

import torch

from gossamer.network.messenger import Arriving


class Mixed(Arriving):
    """sum_j W_ij v_j, or x_i + sum_j W_ij (q(x_j) - q(x_i)) where the wire is coarser than the vectors."""

    def unpack(self) -> None:
        """Sum in ascending node id."""
        arrived = {peer: message.vectors for peer, _, message in self.receives}
        own, node = self.envelope.own, self.net.node
        if self.envelope.form.exact is None:
            arrived[node] = own
            for k, result in enumerate(self.out):
                (first, weight), *rest = self.plan.terms
                torch.mul(arrived[first][k], weight, out=result)
                for j, weight in rest:
                    result.add_(arrived[j][k], alpha=weight)
            return
        rounded = self.envelope.outgoing[0].vectors
        for k, result in enumerate(self.out):
            mine = rounded[k].to(result.dtype)
            result.copy_(own[k])
            for j, weight in self.plan.terms:
                if j != node:
                    result.add_(arrived[j][k].to(result.dtype).sub_(mine), alpha=weight)


class Swapped(Arriving):
    """Row k holds what the k-th peer sent."""

    def unpack(self) -> None:
        """Copy row by row."""
        for k, (_, _, message) in enumerate(self.receives):
            torch._foreach_copy_([rows[k] for rows in self.out], message.vectors)


class Notice(Arriving):
    """Headers, whose coming is all that matters."""

    def unpack(self) -> None:
        """Nothing to fill."""
