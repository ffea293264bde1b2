"""Checkpoints of real nodes: each node writes its own, and all resume from the newest round that all have."""

import logging
import os
import random
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, cast
from urllib.parse import quote

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LRScheduler

from gossamer._common import checkpoint_file as files
from gossamer._common.signals import Interrupts
from gossamer.errors import InputError
from gossamer.network.agreement import meeting_board
from gossamer.optim.bucket import average_buffers
from gossamer.optim.decentralized import DecentralizedOptimizer
from gossamer.optim.restart import Holding, Restart, agree, membership, rounds_to_reach_all

if TYPE_CHECKING:
    from gossamer.optim.site_checkpoints import AmongSites

log = logging.getLogger("gossamer")

POSITIONS = (LRScheduler, torch.amp.GradScaler)
"""What a new node takes from another one, besides the model and the optimizer."""


class Stateful(Protocol):
    """Anything with a state to save: a scheduler, a GradScaler, a data loader that knows its position."""

    def state_dict(self) -> dict[str, Any]:
        """Its state as plain tensors, numbers and words."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take over a state."""
        ...


class Checkpoints:
    """The checkpoints of this node, in `<directory>/node-<name>/round-<round>.ckpt`.

    `rounds` resumes where all nodes can, saves on the way and stops on a signal; started a second time, the loop below
    finds nothing left to do:

    >>> from gossamer.optim import MomentumTracking
    >>> model = nn.Linear(2, 1)
    >>> optimizer = MomentumTracking(model.parameters(), lr=0.05, topology="ring")
    >>> saver = Checkpoints("checkpoints", model, optimizer, every=100)
    >>> for r in saver.rounds(3):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(1, 2)).sum().backward()
    ...     optimizer.step()
    >>> list(saver.rounds(3))
    []

    A loop of another shape calls `resume()` before it and `step()` after every `optimizer.step()`, inside
    `with Checkpoints(...) as saver:` or with `close()` after it.

    A checkpoint holds the model with its buffers, the optimizer with the messages that were under way, the random
    generators of the process and everything in `extra`: objects with `state_dict` and `load_state_dict`, or
    `torch.Generator`s. It is written by every node after the same rounds and deleted when all nodes have newer ones.

    `name` is what the node is called, whatever its rank: by default its label in the topology, or its number. The
    directory may be each node's own or shared by all.

    Ctrl-C or SIGTERM at any node makes all nodes stop before the same round, a few rounds later: the messages of each
    round pass it on. Every node then writes a checkpoint and ends by `SystemExit` with code 130 (Ctrl-C) or
    143 (SIGTERM, and all nodes that were told by others). A second signal ends a node at once.
    """

    _among_sites: "AmongSites | None" = None

    def __init__(
        self,
        directory: Path | str,
        model: nn.Module,
        optimizer: DecentralizedOptimizer,
        *,
        every: int = 100,
        extra: Mapping[str, Stateful | torch.Generator] | None = None,
        name: str | None = None,
    ) -> None:
        if every < 1:
            raise InputError(f"Checkpoints are written every so many rounds, at least 1, but every is {every}.")
        for key, value in (extra or {}).items():
            if not isinstance(value, torch.Generator) and not hasattr(value, "load_state_dict"):
                raise InputError(
                    f"extra['{key}'] is a {type(value).__name__}, which cannot be saved: give a torch.Generator, or an "
                    f"object with the methods state_dict() and load_state_dict()."
                )
        self.model, self.optimizer, self.every, self.extra = model, optimizer, every, dict(extra or {})
        net = optimizer.network
        _refuse_shared_nodes(optimizer)
        self.name = name = optimizer.node_name if name is None else name
        self.directory = Path(directory) / f"node-{quote(name, safe=' ')}"
        self._reach = rounds_to_reach_all(net.topology)
        self.kept = -(-self._reach // every) + 2
        """How many checkpoints are kept at most times: nodes may be some rounds apart."""
        self._names: list[str] = []
        self._begun = False
        self._interrupts = Interrupts()
        if optimizer.membership is not None:
            from gossamer.optim.site_checkpoints import AmongSites

            carried = {key: value for key, value in self.extra.items() if isinstance(value, POSITIONS)}
            self._among_sites = AmongSites(self, optimizer.membership, carried)
        _warn_of_a_store_that_outlives_its_processes()

    def rounds(self, total: int) -> Iterator[int]:
        """The numbers of the rounds that are left of `total`; each must make one `optimizer.step()`.

        The last round is always saved, so that a run that has come to its end finds nothing to do.
        """
        try:
            self.resume()
            while self.optimizer.round < total:
                r = self.optimizer.round
                yield r
                made = self.optimizer.round - r
                if made != 1 and (self.optimizer.membership is None or made < 1):  # sites may have to catch up
                    raise InputError(
                        f"Round {r} must make one optimizer.step(), but it made {made}; with "
                        f"gradient accumulation a round is all that is accumulated for one step."
                    )
                self.step()
                if self.optimizer.round >= total and (total % self.every or self.optimizer.network.failed):
                    self.save()
        except GeneratorExit:
            # Leaving the loop closes this generator, and Python drops what is raised in it meanwhile.
            self._interrupts.pass_on_later()
            raise
        finally:
            self._interrupts.obey()
        self.close()

    # Before training -------------------------------------------------------------------------------------------------

    def resume(self) -> int:
        """Load the newest round that all nodes have, and return it; 0 if there is none. All nodes must call it.

        With the nodes and the graph of the checkpoints, training continues to the same bits. With others (a site has
        left, a site has joined, an edge is new), see `DecentralizedOptimizer.rejoin`: a node that joins starts from the
        average model, and from `extra` it takes learning rate schedulers and GradScalers of another node.
        """
        return self._among_sites.resume() if self._among_sites else self._resume_together()

    def _resume_together(self) -> int:
        net = self.optimizer.network
        told = [Holding.from_words(t) for t in net.join({"interval of checkpoints": self.every}, self._mine().words())]
        restart = agree(told, net.topology.fingerprint)
        self._names = [holding.name for holding in told]
        files.remove_unfinished_checkpoints(self.directory)
        self._begun = self.directory.is_dir()
        if restart.exact:
            path = files.path_of(self.directory, restart.round)
            saved = files.read(path)
            with files.taking_over(path):
                self._load(saved, path)
                self.optimizer.load_state_dict(saved["content"]["optimizer"])
        elif restart.holders:
            self._rejoin(restart, told)
        for round in files.rounds_in(self.directory):
            if round > restart.round:
                files.path_of(self.directory, round).unlink(missing_ok=True)
        if not restart.exact:
            self.save()
        self._confirm(restart.round)
        # No node begins before all have this round, else one that is killed now could not resume with the others.
        net.join()
        return restart.round

    def _mine(self) -> Holding:
        """The checkpoints in the directory that are intact. Damaged files are set aside."""
        rounds: dict[int, str] = {}
        nodes: tuple[str, ...] = ()
        for round in files.rounds_in(self.directory):
            path = files.path_of(self.directory, round)
            try:
                settings, names, graph = _settings(files.read(path))
            except files.Damaged as error:
                log.warning(
                    "The checkpoint %s is damaged (%s): it is passed over and kept as %s.",
                    path,
                    error,
                    files.set_aside(path).name,
                )
                continue
            files.refuse_foreign(path, settings, {"method": self.optimizer.method.facts.title, "node": self.name})
            nodes = tuple(names)
            rounds[round] = membership(nodes, graph)
        return Holding(self.name, rounds, nodes)

    def _load(self, saved: dict[str, Any], path: Path, new: bool = False) -> None:
        """All but the optimizer. A new node leaves what is another's own: generators and its place in the data."""
        content = saved["content"]
        try:
            self.model.load_state_dict(content["model"])
        except RuntimeError as error:
            raise InputError(f"The checkpoint {path} belongs to another model: {error}") from error
        lacking = self.extra.keys() - content["extra"].keys()
        if lacking:
            raise InputError(
                f"The checkpoint {path} holds nothing for extra['{min(lacking)}'], because it was written without it; "
                f"leave it out, or choose another directory."
            )
        for key, value in self.extra.items():
            if isinstance(value, torch.Generator):
                if not new:
                    value.set_state(content["extra"][key])
            elif not new or isinstance(value, POSITIONS):
                value.load_state_dict(content["extra"][key])
        if not new:
            restore_generators(content["generators"])

    def _rejoin(self, restart: Restart, told: list[Holding]) -> None:
        """Go on among other nodes; the new ones get the file of the first holder, and then the mean of all."""
        net, path = self.optimizer.network, files.path_of(self.directory, restart.round)
        new = net.node not in restart.holders
        some_new = len(restart.holders) < net.n
        sent = self._sent_by(restart.holders[0], path) if some_new else b""
        saved = files.from_bytes(sent) if new else files.read(path)
        with files.taking_over(path):
            self._load(saved, path, new)
        if some_new:
            average_buffers(self.model, net, restart.holders, restart.round)
        with files.taking_over(path):
            self.optimizer.rejoin(saved["content"]["optimizer"], restart.holders)
        fresh = [told[i].name for i in range(net.n) if i not in restart.holders]
        log.warning(
            "Other nodes or another graph than in the checkpoints: %s continue from their own models of round %d%s.",
            ", ".join(told[i].name for i in restart.holders),
            restart.round,
            f"; {', '.join(fresh)} from the average model" if fresh else "",
        )

    def _sent_by(self, giver: int, path: Path) -> bytes:
        """The file of node `giver`, on all nodes."""
        net = self.optimizer.network
        data = files.to_bytes(path) if net.node == giver else b""
        size = net.join(own={"size": len(data)})[giver]["size"]
        device = next(self.model.parameters()).device
        buffer = torch.empty(size, dtype=torch.uint8, device=device)
        if net.node == giver:
            buffer.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        net.broadcast(buffer, giver)
        return buffer.cpu().numpy().tobytes()

    # During training -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """After every `optimizer.step()`: save if it is due; stop if a node was asked to."""
        self._refuse_before_resume("step")
        if not self._interrupts.requested:
            self._interrupts.defer()
        net, round = self.optimizer.network, self.optimizer.round
        if self._among_sites is not None:
            self._among_sites.step()
            return
        if self._interrupts.requested and net.messenger.stop is None:
            # The request leaves with the next step at the latest, and then reaches nodes one edge further every round.
            net.messenger.stop = round + (self._reach + 1 if net.n > 1 else 0)
        stops = net.messenger.stop is not None and round >= net.messenger.stop
        if stops or round % self.every == 0:
            self.save()
        if stops:
            self._end()

    def close(self) -> None:
        """After the last round: signals do what they did before, also one that came too late to stop the rounds."""
        self._interrupts.pass_on()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close; on an exception signals do what they did before, and the exception goes on."""
        self.close() if kind is None else self._interrupts.obey()

    def save(self) -> Path:
        """Write a checkpoint now. For all nodes to resume from it, all must write one of this round.

        It may hold tensors, numbers, words and collections of them; NumPy's numbers become Python's.
        """
        self._refuse_before_resume("save")
        extra = {
            key: value.get_state() if isinstance(value, torch.Generator) else value.state_dict()
            for key, value in self.extra.items()
        }
        content = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generators": generator_states(),
            "extra": extra,
        }
        settings = {
            "method": self.optimizer.method.facts.title,
            "node": self.name,
            "nodes": self._names,
            # A round that was finished alone does not fit together with those of the others: no graph is that of it.
            "graph": "" if self.optimizer.network.failed else self.optimizer.network.topology.fingerprint,
        }
        round = self.optimizer.round
        self._refuse_what_is_not_finite(content)
        path = files.write(self.directory, round, settings, content, make_directory=not self._begun)
        self._begun = True
        confirmed = self._confirm(round)
        for old in files.rounds_in(self.directory)[: -self.kept]:
            if old < confirmed:
                files.path_of(self.directory, old).unlink(missing_ok=True)
        return path

    def _refuse_what_is_not_finite(self, content: dict[str, Any]) -> None:
        """Stop all nodes instead of writing a checkpoint from which nobody could go on."""
        parameters = [parameter.detach() for parameter in self.model.parameters()]
        found = files.first_not_finite([parameters, content["optimizer"]["state"]])
        if found is None:
            found = files.first_not_finite(content["model"], infinity=True)
        if found is not None:
            log.error(
                "The model or the optimizer of node %s holds numbers that are not finite after round %d, so no "
                "checkpoint is written: the last one is the one to go on from.",
                self.name,
                self.optimizer.round,
            )
            raise self.optimizer.diverged(found, "model")

    def _refuse_before_resume(self, call: str) -> None:
        if not self._names:
            raise InputError(f"Call resume() before the first {call}: it finds the round from which all nodes resume.")

    def _confirm(self, round: int) -> int:
        """Tell all nodes that this one has saved `round`; the newest round that all of them have."""
        group = self.optimizer.network.group
        if group is None or self._among_sites is not None:  # sites are never far apart
            return round
        keys = [f"saved/{rank}" for rank in range(group.size())]
        board = meeting_board(group)
        try:
            board.set(keys[group.rank()], str(round))
            return min(int(text) for text in board.multi_get(keys)) if board.check(keys) else -1
        except (RuntimeError, ValueError):
            # The process that holds the store is gone, and the next message will fail; or a key holds no number.
            return -1

    def _end(self) -> NoReturn:
        self.optimizer.close()
        self._interrupts.settle()
        number = self._interrupts.signal or signal.SIGTERM
        log.warning(
            "%s asked this run to end: all nodes have stopped and saved round %d.",
            signal.Signals(number).name if self._interrupts.requested else "Another node",
            self.optimizer.round,
        )
        raise SystemExit(128 + number)


def _settings(saved: dict[str, Any]) -> tuple[dict[str, Any], list[str], str]:
    """The settings of a checkpoint, the names of its nodes and its graph; `Damaged` if it lacks what is needed."""
    settings, content = saved["settings"], saved["content"]
    names, graph = settings.get("nodes"), settings.get("graph")
    for part in ("model", "optimizer", "generators", "extra"):
        if not isinstance(content.get(part), dict):
            raise files.Damaged(f"it holds no {part}")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not isinstance(graph, str):
        raise files.Damaged("it does not say which nodes it belongs to")
    return settings, names, graph


def _warn_of_a_store_that_outlives_its_processes() -> None:
    """torchrun keeps one store over all restarts, in which init_process_group finds the addresses of the dead."""
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
    if kept and restarts != "0" and os.environ.get("RANK") == "0":
        log.warning(
            "torchrun may restart this program (--max-restarts=%s), but init_process_group can then hang; set "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of torchrun or, if it was started with "
            "--master-addr, start torchrun itself again instead.",
            restarts,
        )


def _refuse_shared_nodes(optimizer: DecentralizedOptimizer) -> None:
    """A node of several processes has one state in several parts, which only torch.distributed.checkpoint can write."""
    group = optimizer.network.group
    parts = group is not None and group.size() < dist.get_world_size()
    parameters = [cast(Tensor, p) for g in optimizer.param_groups for p in g["params"]]
    if parts or any(isinstance(p, DTensor) for p in parameters):
        raise InputError(
            "Checkpoints writes one file per node, but here a node consists of several processes; save with "
            "torch.distributed.checkpoint instead, with the node's number in the key."
        )


def generator_states() -> dict[str, Any]:
    """The random generators of torch, its accelerators, Python and NumPy, as plain tensors and numbers."""
    version, words, gauss = random.getstate()
    name, key, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, torch.tensor(words), gauss],
        "numpy": [str(name), torch.from_numpy(np.asarray(key, dtype=np.int64)), *rest],
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Take over what `generator_states` gave. Accelerators that this machine does not have are skipped."""
    torch.set_rng_state(states["torch"])
    for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, device)
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, key, *rest = states["numpy"]
    np.random.set_state((name, key.numpy().astype(np.uint32), *rest))  # noqa: NPY002
