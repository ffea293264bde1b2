"""The same experiment on real nodes: one process each, started by torchrun.

    torchrun --nproc-per-node 8 -m gossamer run experiment.toml

Data split, start, batches and random numbers are those of the simulator, and so are the figures and the run directory,
which node 0 writes. Figures travel to node 0 as one vector of numbers per evaluation.
"""

import gc
import logging
import math
import os
import re
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer import methods, models, optim
from gossamer._common.formatting import Row, lines, say
from gossamer.data import NodeBatches, NodeData
from gossamer.engine.gradients.autograd import tallies
from gossamer.engine.hardware import NodeGenerators, Workers, device_of
from gossamer.engine.history import Meter, Scores, bytes_per_node, row_of
from gossamer.engine.local_steps import by_name
from gossamer.engine.node_models import check_task, fitted, make_model
from gossamer.engine.schedule import EVALUATIONS, schedule_of
from gossamer.engine.simulation import refuse_metric
from gossamer.errors import DivergenceError, InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.locks import alone
from gossamer.experiments.store import StoredRun, add_row, clear, refuse_another
from gossamer.experiments.training import Execution, begin, describe, finish, length_of, prepare
from gossamer.network.waiting import LONGEST, TIMEOUT
from gossamer.network.wire import is_finite
from gossamer.optim.checkpointing import Checkpoints
from gossamer.tasks import Tally, task_of
from gossamer.topology import Topology

log = logging.getLogger("gossamer")


def train_here(experiment: Experiment, directory: Path, execution: Execution | None = None) -> StoredRun | None:
    """Carry out this process's part of an experiment; the run directory on node 0, None on the others.

    Node 0 calls the callbacks of `execution`.
    """
    execution = execution or Execution()
    experiment.check()
    if experiment.churn:
        raise InputError("Nodes come and go by churn only in the simulator; leave it out on real nodes.")
    if execution.workers is not None:
        raise InputError(
            f"Under torchrun every node is a process of its own, so there are no nodes for {execution.workers} workers "
            f"to share; leave out --workers, and set OMP_NUM_THREADS for the threads of a process."
        )
    where = device_of(execution.device)
    if where.type == "cuda":
        where = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(where)
    _join("nccl" if where.type == "cuda" else "gloo", execution.timeout)
    try:
        if dist.get_world_size() != experiment.nodes:
            raise InputError(
                f"The experiment has {experiment.nodes} nodes but torchrun started {dist.get_world_size()} processes; "
                f"start one process per node, or give --nodes {dist.get_world_size()}."
            )
        return _train(experiment, directory, execution, where)
    finally:
        _leave()


class Voice(logging.Handler):
    """What a node says on the command line: with its name, and only what no other node here has said before.

    torchrun shows the output of all processes of a machine in one place.
    """

    def say(self, sentence: str) -> None:
        """Print the sentence with which this node ends. Neighbours of a lost node may tell of different rounds."""
        self._say(sentence, re.sub(r"\bround \d+", "", sentence))

    def _say(self, sentence: str, claim: str) -> None:
        if self._is_first(claim):
            node = os.environ.get("GOSSAMER_NODE") or os.environ.get("RANK", "0")
            say(f"gossamer: node {node}: {sentence}", error=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Say a line of the log."""
        self._say(record.getMessage(), record.getMessage())

    def _is_first(self, claim: str) -> bool:
        """Lay a claim by a file in the folder that torchrun keeps for the processes of this machine."""
        folder = Path(os.environ.get("TORCHELASTIC_ERROR_FILE", "")).parent.parent
        if folder == Path():  # torchrun has none, so every node speaks
            return True
        try:
            (folder / f"gossamer-said-{zlib.crc32(claim.encode())}").touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError:
            pass
        return True


def _join(backend: str, timeout: float) -> None:
    """init_process_group that also works after torchrun has restarted the processes.

    torchrun keeps one store over all restarts, in which the usual call would find the addresses of the dead.
    """
    if not 0 < timeout <= LONGEST:
        raise InputError(f"--timeout needs a number of seconds above 0, at most {LONGEST:g}, not {timeout:g}.")
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    # Nobody has met anybody yet: what is late here is a process that is still starting.
    patience = timedelta(seconds=max(timeout, 300.0))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or restarts == "0":
        dist.init_process_group(backend, timeout=patience)
        return
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*address, is_master=False)  # type: ignore[attr-defined]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    fresh = dist.PrefixStore(f"restart-{restarts}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=fresh, rank=rank, world_size=size, timeout=patience)


def _leave() -> None:
    """destroy_process_group that also ends the group's threads, which live as long as anything refers to the group.

    A thread that gives a tensor back to Python while the process ends would abort it.
    """
    dist.destroy_process_group()
    gc.collect()


def _train(experiment: Experiment, directory: Path, execution: Execution, device: torch.device) -> StoredRun | None:
    refuse_another(directory, experiment, "processes")
    nodes, graph = prepare(experiment, execution.data_dir)
    here = NodeTraining(experiment, nodes, graph, device, execution.timeout)
    description = describe(experiment, nodes, graph, "processes")
    # The node that writes claims the directory for all.
    with alone(directory) if here.node == 0 else nullcontext():
        return _carry_out(here, directory, description, execution.callbacks)


def _carry_out(
    here: "NodeTraining", directory: Path, description: dict[str, Any], callbacks: Sequence[Callable[[Row], None]]
) -> StoredRun | None:
    writes = here.node == 0
    if writes and (changed := StoredRun(directory).outdated):
        log.warning("%s was made with another version of the file of its %s and is made again.", directory, changed)
        clear(directory)
    if [1.0] in here.gather(float(writes and StoredRun(directory).finished)):
        return StoredRun(directory) if writes else None
    if writes:
        begin(directory, description)
    began = time.perf_counter()
    outcome: dict[str, Any] = {"status": "done"}
    try:
        here.run(directory, [lambda row: add_row(directory, row), *callbacks] if writes else [])
    except DivergenceError as error:
        outcome = {"status": "diverged", "reason": str(error), "round": error.round, "node": error.node}
    # Nobody removes checkpoints before all are done.
    here.optimizer.close()
    if here.optimizer.network.waiting.failure is None:
        here.gather()
    else:
        here.optimizer.network.part()
    if not writes:
        return None
    finish(directory, {**outcome, "seconds": time.perf_counter() - began})
    return StoredRun(directory)


class NodeTraining:
    """One node of an experiment: an ordinary training loop around an optimizer."""

    def __init__(
        self,
        experiment: Experiment,
        nodes: NodeData,
        graph: Topology,
        device: torch.device,
        timeout: float = TIMEOUT,
    ) -> None:
        self.experiment, self.graph, self.device = experiment, graph, device
        self.task, self._own = task_of(experiment.loss, experiment.metric or None), experiment.evaluate == "own"
        self.schedule = schedule_of(nodes, experiment.batch_size, **length_of(experiment))
        self.method = methods.get(experiment.method)
        start = make_model(models.get(experiment.model_name), nodes, experiment.seed, self.task)
        self.nodes = nodes = fitted(nodes, start, experiment.batch_size)
        self.model = start.train().to(device)
        options: Any = {
            "topology": graph,
            "node": os.environ.get("GOSSAMER_NODE"),
            "timeout": timeout,
            "nonfinite": experiment.nonfinite,
        }
        self._decay = 0.0
        self.optimizer: optim.DecentralizedOptimizer
        self._stepping: torch.optim.Optimizer
        if experiment.inner or experiment.every > 1:
            inner = by_name(experiment.inner or "sgd")(self.model.parameters())
            self.optimizer = optim.Outer(inner, self.method, every=experiment.every, **options)
            self._stepping, self._decay = inner, experiment.weight_decay
        else:
            self.optimizer = optim.optimizer_of(
                self.method,
                self.model.parameters(),
                lr=self.schedule.step_size(0),
                weight_decay=experiment.weight_decay,
                decoupled=experiment.decoupled,
                **options,
            )
            self._stepping = self.optimizer
        self.node = self.optimizer.node
        self._test_part = nodes.test_part(self.schedule.test_samples, experiment.seed)
        self._weight = float(nodes.loss_weights(experiment.node_weight)[self.node])
        self.batches = NodeBatches(nodes.partition.indices, experiment.batch_size, experiment.seed)
        self._inputs = nodes.dataset.train_inputs.to(device)
        self._targets = nodes.dataset.train_targets.to(device)
        self._seed_forward()
        self._gradient_norm = 0.0
        self._meter = Meter(nodes=1)

    def run(self, directory: Path, callbacks: Sequence[Callable[[Row], None]]) -> None:
        """All rounds that are left, with an evaluation, told to the callbacks, and a checkpoint now and then."""
        every = min(self.schedule.rounds_between_evaluations, -(-self.schedule.rounds // EVALUATIONS))

        def evaluate(round: int) -> None:
            row = self.measure(round)
            if own := row[f"node_{self.task.metric.name}"]:
                self.optimizer.note(**{self.task.metric.name: own[self.node]})
            for callback in callbacks:
                callback(row)

        tell = lines(self.method.facts.title) if callbacks else None
        place, state = directory / "checkpoints", {"training": self}
        steps = self.experiment.every
        with Checkpoints(place, self.model, self.optimizer, every=max(1, every // steps), extra=state) as saver:
            start = saver.resume() * steps
            if start == 0:
                evaluate(0)
            for r in range(start, self.schedule.rounds):
                self.advance(r)
                if self.schedule.is_evaluated(r + 1):
                    evaluate(r + 1)
                if (r + 1) % steps == 0:
                    saver.step()
                if tell:
                    tell((r + 1) / self.schedule.rounds)

    def advance(self, r: int) -> None:
        """One round on this node's next batch."""
        began = time.perf_counter()
        lr = self.schedule.step_size(r)
        for group in self._stepping.param_groups:
            group["lr"] = lr
        pipeline = self.nodes.pipeline
        index = self.batches.next(self.node)
        draws = pipeline.draw(len(index), self.batches.generators[self.node])
        index = index.to(self.device)
        inputs, targets = pipeline.batch(self._inputs, index, draws), self._targets[index]
        self.optimizer.zero_grad()
        loss = self.task.loss.function(self.model(inputs), targets)
        torch.autograd.backward(self._weight * loss)
        value = float(loss.detach())
        if self.experiment.nonfinite == "skip":
            value = self._skip_if_not_finite(value, r)
        self._clip()
        if self._decay:
            for p in self.model.parameters():
                p.grad.add_(p.detach(), alpha=self._decay)  # type: ignore[union-attr]
        if not math.isfinite(value):
            raise self.optimizer.diverged(value)
        self.optimizer.note(loss=value)
        self.optimizer.step()
        self._meter.add(torch.tensor([value], dtype=torch.float64), len(index), time.perf_counter() - began)

    def measure(self, round: int) -> Row:
        """The figures of the moment, the same on every node. All nodes call it."""
        n, last = self.nodes.nodes, round == self.schedule.rounds
        test = self.nodes.all_own_tests if self._own else self.nodes.test if last else self._test_part
        own = self._score(self.nodes.own_tests[self.node] if self._own else test)
        validated = last and len(self.nodes.validation[1]) > 0
        average = self._score_average(test)
        valid_here = self._score(self.nodes.validation) if validated else None
        figures = self.gather(
            own.metric,
            own.loss,
            valid_here.metric if valid_here else 0.0,
            *self._distances(),
            self._gradient_norm,
            self._meter.train_loss or 0.0,
            self._meter.samples_per_second or 0.0,
            self._meter.seconds,
            *average,
        )
        (
            metric, loss, valid, distances, trackings, norms, trains, speeds, seconds, *sums,
        ) = (list(column) for column in zip(*figures, strict=True))  # fmt: skip
        step_size = self.schedule.step_size
        for node, value in enumerate(loss):
            if not math.isfinite(value):
                raise DivergenceError(node, max(0, round - 1), value, step_size(max(0, round - 1)), "test loss")
        metric.append(self._averaged(sums)[0])
        refuse_metric(metric, self.task.metric.name, max(0, round - 1), step_size(max(0, round - 1)))
        self._meter.forget_losses()
        dim = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        width = next(self.model.parameters()).element_size()
        return row_of(
            metric=self.task.metric.name,
            round=round,
            rounds_per_epoch=self.schedule.rounds_per_epoch,
            lr=step_size(max(0, round - 1)),
            test=Scores(metric, [*loss, self._averaged(sums)[1]]),
            test_samples=len(test[1]),
            validation=valid if validated else None,
            train_loss=sum(trains) / n if round else None,
            consensus_distance=sum(distances) / n,
            tracking_error=sum(trackings) / n if self.optimizer.tracked() is not None else None,
            gradient_norm=sum(norms) / n if round else None,
            bytes_sent=bytes_per_node(self.method, self.graph, dim, width, round // self.experiment.every),
            samples_per_second=sum(speeds) if round else None,
            seconds=max(seconds),
        )

    def gather(self, *figures: float) -> list[list[float]]:
        """Every node's figures, in the order of nodes."""
        mine = torch.tensor([self.node, *figures], dtype=torch.float64, device=self.device)
        rows = [torch.empty_like(mine) for _ in range(self.nodes.nodes)]
        net = self.optimizer.network
        with net.waiting.everyone("the exchange of figures", net.messenger.name, self.optimizer.round):
            work = dist.all_gather(rows, mine, async_op=True)
            if work is not None:
                work.wait(net.waiting.timeout)
        return [row[1:] for row in sorted(row.tolist() for row in rows)]

    def state_dict(self) -> dict[str, Any]:
        """What decides the rounds to come, beside model and optimizer."""
        return {
            "batches": self.batches.state_dict(),
            "meter": self._meter.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self.batches.load_state_dict(saved["batches"])
        self._meter.load_state_dict(saved["meter"])

    def _skip_if_not_finite(self, loss: float, r: int) -> float:
        """Count a round whose loss or gradient is not finite as gradient 0, as the simulator does; its loss then."""
        gradients = self._gradients()
        if math.isfinite(loss) and all(map(is_finite, gradients)):
            return loss
        torch._foreach_zero_(gradients)
        self.optimizer.skipped_rounds += 1
        log.warning("Round %d of node %d counts as gradient 0: it was not finite.", r, self.node)
        return 0.0

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def _clip(self) -> None:
        gradients = self._gradients()
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))
        self._gradient_norm = norm
        if self.experiment.clip and norm > self.experiment.clip:
            torch._foreach_mul_(gradients, self.experiment.clip / norm)

    def _score(self, samples: tuple[Tensor, Tensor]) -> Tally:
        """Loss and metric of the present model."""
        with Workers(1) as workers:
            (found,) = tallies([self.model], [samples], self.nodes.pipeline, workers, self.device, self.task)
        return found

    def _score_average(self, samples: tuple[Tensor, Tensor]) -> list[float]:
        """This node's share of the averaged model's sums: every node scores some of the samples.

        A metric that is not made of sums needs all outputs at once: then every node scores all samples.
        """
        inputs, targets = samples
        if self._sums is None:
            with optim.averaged(self.model):
                found = self._score(samples)
            return [found.metric, found.loss]
        mine = slice(self.node, None, self.nodes.nodes)
        with optim.averaged(self.model):
            return self._score((inputs[mine], targets[mine])).sums or [0.0] * (2 + self._sums)

    def _averaged(self, sums: list[list[float]]) -> tuple[float, float]:
        """Metric and loss of the averaged model, from what all nodes gave for it."""
        if self._sums is None:
            return sums[0][0], sums[1][0]
        found = Tally(self.task, [sum(column) for column in sums])
        return found.metric, found.loss

    def _distances(self) -> tuple[float, float]:
        """|x_i - xbar|^2 and |y_i - ybar|^2 (0 for a method that does not track)."""
        x = torch.cat([p.detach().reshape(-1) for p in self.model.parameters() if p.requires_grad])
        return self._from_mean(x), 0.0 if (y := self.optimizer.tracked()) is None else self._from_mean(y)

    def _from_mean(self, vector: Tensor) -> float:
        mean = self.optimizer.network.average(vector, round=self.optimizer.round)
        return float((vector - mean).double().square().sum())

    def _seed_forward(self) -> None:
        """A model with Dropout draws the numbers that its node would draw in the simulator."""
        draws, sums = check_task(self.model, self.nodes, self.task, self.device)
        self._sums = sums if self.task.has_sums else None
        if draws:
            NodeGenerators(self.experiment.seed, self.nodes.nodes, self.device).enter(self.node)
