"""A site is lost at a chosen message. The sites are threads that meet without a coordinator."""

import gc
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gossamer import Sites, optim
from gossamer.network import waiting
from gossamer.network.sites import Change, Gathering
from gossamer.network.transfer import Messenger

pytest.importorskip("torchft")


class LostError(Exception):
    """Ends a site."""


class Hall:
    """Where sites meet: all that are alive come, and are connected."""

    def __init__(self, names: str) -> None:
        self.alive, self.come = set(names), dict[str, dict[str, Any]]()
        self.meetings: list[tuple[tuple[str, ...], tuple[dict[str, Any], ...], dist.Store]] = []
        self._changed = threading.Condition()

    def lose(self, name: str) -> None:
        with self._changed:
            self.alive.discard(name)
            self._begin_if_complete()

    def meet(self, name: str, told: dict[str, Any]) -> Gathering:
        with self._changed:
            self.come[name] = told
            number = len(self.meetings)
            self._begin_if_complete()
            assert self._changed.wait_for(lambda: len(self.meetings) > number, 20), f"{name} waits"
            names, every, store = self.meetings[number]
        rank = names.index(name)
        if len(names) == 1:
            return Gathering(names, rank, every, None)
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=5)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1", lazy_init=False)]
        return Gathering(names, rank, every, dist.ProcessGroupGloo(store, rank, len(names), options))

    def _begin_if_complete(self) -> None:
        if self.come and set(self.come) >= self.alive:
            names = tuple(sorted(self.come))
            self.meetings.append((names, tuple(self.come[name] for name in names), dist.HashStore()))
            self.come = {}
            self._changed.notify_all()


class Site(threading.Thread):
    """Trains on a quadratic of its own until `rounds` are made; `between` is called after every step."""

    fuse: int | None = None
    """How many messages this site still sends or receives before it is lost."""

    def __init__(
        self,
        hall: Hall,
        name: str,
        make: Callable[..., optim.DecentralizedOptimizer],
        rounds: int,
        between: Callable[["Site"], None] = lambda site: None,
        start: float = 0.0,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.hall, self.rounds, self.between, self.is_gone = hall, rounds, between, threading.Event()
        self.curvature = 1 + 0.5 * (ord(name) - ord("a"))
        self.x = nn.Parameter(torch.full((5,), start, dtype=torch.float64))
        self.more = nn.Parameter(torch.zeros(2))  # in float32: a bucket of its own
        sites = Sites("localhost:1", name=name, at_least=1, patience=5.0, on_change=self._note)
        sites.meet = lambda told: hall.meet(name, dict(told))  # type: ignore[method-assign]
        self.optimizer = make([self.x, self.more], sites=sites)
        self.error: BaseException | None = None
        self.changes: list[tuple[Change, list[Tensor]]] = []

    def _note(self, change: Change) -> None:
        method = self.optimizer._method_of(self.optimizer.param_groups[0])
        corrections = [method.correction(b.state).clone() for b in self.optimizer._buckets if method.facts.tracks]
        self.changes.append((change, corrections))

    def run(self) -> None:
        try:
            while self.optimizer.round < self.rounds:
                self.optimizer.zero_grad()
                (self.curvature * (self.x - self.curvature).square().sum() + self.more.square().sum()).backward()
                self.optimizer.step()
                self.between(self)
        except BaseException as error:
            self.error = error.with_traceback(None)
        self.hall.lose(self.name)
        waiting.unclosed.pop(self.optimizer.membership, None)
        self.optimizer.membership._part()
        gc.collect()
        self.is_gone.set()

    def momentum(self) -> Tensor:
        return torch.cat([b.state.signal.double() for b in self.optimizer._buckets])


@pytest.fixture(autouse=True)
def _fuses(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Messenger._start

    def burn(self: Messenger, *arguments: Any) -> Any:
        site = threading.current_thread()
        if isinstance(site, Site) and site.fuse is not None:
            if site.fuse == 0:
                raise LostError
            site.fuse -= 1
        return start(self, *arguments)

    monkeypatch.setattr(Messenger, "_start", burn)


def train(*sites: Site) -> None:
    for site in sites:
        site.start()
    for site in sites:
        site.join(30)
        assert not site.is_alive()
    errors = [site.error for site in sites if site.error is not None and not isinstance(site.error, LostError)]
    assert not errors, errors


METHODS = [*(o.__name__ for o in optim.ALL), "Outer"]


@pytest.mark.parametrize("method", METHODS)
def test_two_sites_are_lost_one_after_the_other_in_the_middle_of_a_round(method: str) -> None:
    def make(parameters: list[nn.Parameter], sites: Sites) -> optim.DecentralizedOptimizer:
        if method == "Outer":
            inner = torch.optim.SGD(parameters, lr=0.02)
            return optim.Outer(inner, "momentum-tracking:beta=0.5", every=2, topology="ring", sites=sites)
        graph = "chain" if method.startswith("RelaySum") else "ring"
        made: optim.DecentralizedOptimizer = getattr(optim, method)(parameters, lr=0.02, topology=graph, sites=sites)
        return made

    def light(site: Site) -> None:
        if site.optimizer.round == 6 and site.fuse is None and site.name in "bd":
            site.fuse = {"b": 3, "d": 7}[site.name]  # one neighbour gets its message of the round, the other does not

    hall = Hall("abcde")
    sites = [Site(hall, name, make, 24, light) for name in "abcde"]
    train(*sites)
    assert {site.name for site in sites if site.error} == {"b", "d"}
    left = [site for site in sites if not site.error]
    assert {site.optimizer.round for site in left} == {24}
    assert all(site.x.isfinite().all() for site in left)
    (last, corrections), *others = (site.changes[-1] for site in left)
    assert last.sites == ("a", "c", "e")
    assert [change.round for change, _ in others] == [last.round] * 2
    for k, own in enumerate(corrections):
        every = torch.stack([own, *(c[k] for _, c in others)]).double()
        assert every.mean(0).abs().max() < 1e-6 * every.abs().max().clamp(min=1e-6), "mean Y = mean U"


def momentum_tracking(parameters: list[nn.Parameter], sites: Sites) -> optim.DecentralizedOptimizer:
    return optim.MomentumTracking(parameters, lr=0.02, topology="ring", sites=sites)


@pytest.mark.parametrize("fuse", [0, 6, 14, 24])
def test_a_site_that_is_lost_while_another_joins_leaves_them_as_they_were(fuse: int) -> None:
    before: dict[str, Tensor] = {}
    joined = threading.Event()

    def between(site: Site) -> None:
        if site.optimizer.round != 6:
            return
        if site.name == "a":
            hall.alive.add("d")
            new.start()
        joined.wait(0.5)
        site.optimizer.membership.leave()  # all meet before the next step
        before[site.name] = site.momentum()
        if site.name == "b":
            site.fuse = fuse

    hall = Hall("abc")
    new = Site(hall, "d", momentum_tracking, 24, start=1000.0)
    sites = [Site(hall, name, momentum_tracking, 24, between) for name in "abc"]

    def seen(change: Change) -> None:
        kept = sites["abc".index(threading.current_thread().name)]
        after[kept.name] = kept.momentum()

    after: dict[str, Tensor] = {}
    for site in sites:
        site.optimizer.membership.sites.on_change = seen
    train(*sites)
    new.join(30)
    assert new.error is None
    assert [len(names) for names, *_ in hall.meetings] == [3, 4, 3]
    names, told, _ = hall.meetings[-1]
    assert names == ("a", "c", "d")
    assert [t["holds"] for t in told] == [True, True, False], "the new site has no model yet"
    assert new.optimizer.round == 24
    for name in "ac":
        assert before[name].abs().max() > 0
        assert torch.equal(after[name], before[name])
    assert new.x.abs().max() < 10, "it took the average model"


CALLS: dict[str, Callable[[Site], object]] = {
    "state_dict": lambda site: site.optimizer.state_dict(),
    "resend": lambda site: site.optimizer.resend(),
    "add_param_group": lambda site: site.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]}),
}


@pytest.mark.parametrize("call", CALLS)
def test_between_two_steps_a_lost_site_is_no_error_either(call: str) -> None:
    def between(site: Site) -> None:
        if site.optimizer.round == 6 and site.name == "b":
            raise LostError
        if site.optimizer.round == 6:
            assert sites[1].is_gone.wait(20)
            CALLS[call](site)

    hall = Hall("abc")
    sites = [Site(hall, name, momentum_tracking, 12, between) for name in "abc"]
    train(*sites)
    assert [site.optimizer.round for site in sites] == [12, 6, 12]
    assert hall.meetings[-1][0] == ("a", "c")
