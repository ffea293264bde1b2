"""Who is there: sites that come and go, each started by itself.

torchft's lighthouse, which `gossamer coordinator` runs, agrees on who is there; no model and no data passes it. The
sites that it names then connect to each other, in the living process: a new gloo group for every change.
"""

import hashlib
import logging
import math
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from http.client import HTTPException
from multiprocessing.util import Finalize
from typing import Any, NamedTuple, TypeVar

from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore

from gossamer._common.checks import is_finite_number, whole_number
from gossamer.errors import InputError, PeerError
from gossamer.network.waiting import LONGEST

log = logging.getLogger("gossamer")

HEALTHY = 1.0
"""Seconds after its last heartbeat in which the coordinator counts a site as there."""
_BEAT = 0.2
_LOOK = 0.5
"""Seconds between two looks at who else is there."""
_ANSWER = 1.0
"""Seconds within which the coordinator answers a heartbeat."""
_QUORUM = 20.0
"""Seconds of one question who is there: the answer comes when all sites have asked."""
_CONNECT = 5.0
"""Seconds within which sites that have all been named connect to each other."""
_AGAIN = 10.0
"""Seconds until a site that sent heartbeats but did not come to a meeting is waited for again."""
_REMIND = 30.0
"""Seconds between two log lines about the same wait."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SEEN = re.compile(r"^\s*(\S+): seen ([0-9.e-]+)s ago", re.MULTILINE)
_Answer = TypeVar("_Answer")


class Change(NamedTuple):
    """What `on_change` is told: sites left or joined before `round`."""

    round: int
    sites: tuple[str, ...]
    """Those that are there now."""
    left: dict[str, str]
    """Those that left, with the reason."""
    joined: tuple[str, ...]


class Gathering(NamedTuple):
    """Sites that are connected to each other."""

    names: tuple[str, ...]
    """Sorted; the rank of a site in the group is its place here."""
    rank: int
    told: tuple[dict[str, Any], ...]
    """What each of them said to all."""
    group: Any
    """A `ProcessGroupGloo`, which is no `ProcessGroup` to torch's types; None for a site that is alone."""


class Sites:
    """One site among others that come and go; an optimizer takes it as `sites=`.

    `coordinator` is the HOST:PORT of `gossamer coordinator`, and `name` what this site is called. Training goes on with
    `at_least` so many sites, and waits for more below. A site that is silent for `patience` seconds is dropped: choose
    it longer than the slowest round. A site that comes back after fewer than `stale` rounds keeps its own model, others
    take the average. `on_change` is called with a `Change` when sites have left or joined.

    >>> sites = Sites("coordinator:29510", name="oslo", at_least=3)
    >>> sites.patience, sites.stale
    (60.0, 100)
    """

    def __init__(
        self,
        coordinator: str,
        *,
        name: str,
        at_least: int = 2,
        patience: float = 60.0,
        stale: int = 100,
        on_change: Callable[[Change], None] | None = None,
    ) -> None:
        host, colon, port = str(coordinator).rpartition(":")
        if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InputError(f"The coordinator is at HOST:PORT, for instance 10.77.0.1:29510, not '{coordinator}'.")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"The name of a site consists of letters, digits, '.', '-' and '_', unlike {name!r}.")
        if not is_finite_number(patience) or not 0 < patience <= LONGEST:
            raise InputError(f"patience is {patience!r}, but it must be a number of seconds above 0.")
        self.coordinator, self.name = coordinator, name
        self.at_least = whole_number(at_least, "the least number of sites ('at_least')", least=1)
        self.patience = float(patience)
        self.stale = whole_number(stale, "the rounds after which a model is stale ('stale')", least=1)
        self.on_change = on_change
        self.id = f"{name}~{time.time_ns():x}~{uuid.uuid4().hex[:8]}"
        """This process: the name, and what tells it from an earlier one of the same name."""
        self.may_wait: Callable[[], None] = lambda: None
        """Called again and again while this site waits for others; it may raise to end that."""
        self._host, self._port = host.strip("[]"), int(port)
        self._client_class = _lighthouse_client()
        self._generation = 0
        self._members: frozenset[str] = frozenset()
        self._strangers: frozenset[str] = frozenset()
        self._passed_over: dict[str, float] = {}
        self._progress = -math.inf
        self._meeting = False
        self._heard = -math.inf
        self._misses = 0
        self._said: tuple[str, float] = ("", -math.inf)
        self._server: TCPStore | None = None
        self._gone: threading.Event | None = None
        self._address = ""

    # While rounds are made -------------------------------------------------------------------------------------------

    def progress(self) -> None:
        """This site is at work. Without it for longer than `patience`, it stops telling that it is there."""
        self._progress = time.monotonic()

    @property
    def newcomers(self) -> bool:
        """Whether a site that is not one of the members wants to join."""
        if not self._strangers:
            return False
        now = time.monotonic()
        return any(now >= self._passed_over.get(stranger, 0.0) for stranger in self._strangers)

    def leave(self) -> None:
        """Stop telling that this site is there. The next `meet` brings it back."""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone.set()

    def _attend(self, gone: threading.Event) -> None:
        """Heartbeats, as long as this site is at work, and a look at who else is there."""
        client, looked = None, 0.0
        while not gone.wait(_BEAT):
            if not self._meeting and time.monotonic() - self._progress > self.patience:
                continue
            try:
                client = client or self._client(_ANSWER)
                client.heartbeat(self.id, timedelta(seconds=_ANSWER))
                self._heard = time.monotonic()
                if self._heard - looked >= _LOOK and self._members:
                    looked = self._heard
                    self._strangers = self._present() - self._members
            except (RuntimeError, OSError, ValueError, HTTPException):
                client = None
                self._misses += 1

    def _present(self) -> frozenset[str]:
        """The sites whose heartbeats the coordinator has seen just now: it shows them on its status page."""
        import urllib.request

        open_directly = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        with open_directly(f"http://{self._authority}/status", timeout=_ANSWER) as page:
            text = page.read().decode(errors="replace")
        return frozenset(found for found, age in _SEEN.findall(text) if float(age) < HEALTHY)

    # Meeting ---------------------------------------------------------------------------------------------------------

    def meet(self, told: Mapping[str, Any]) -> Gathering:
        """Find out who is there, tell them all what `told` says, and connect to them.

        This waits for the coordinator, for `at_least` sites and for all members of the last meeting that are alive.
        """
        self._meeting = True
        began = time.monotonic()
        try:
            self._open()
            while True:
                gathering = self._gather(told, began)
                if gathering is not None:
                    self._said = ("", -math.inf)
                    return gathering
        finally:
            self.progress()
            self._meeting = False

    def _gather(self, told: Mapping[str, Any], began: float) -> Gathering | None:
        """One attempt; None if it has to be made again."""
        said = {**told, "generation": self._generation, "at_least": self.at_least}
        quorum = self._quorum(int(told["round"]), said)
        if quorum is None:
            return None
        members = [(str(p.replica_id), str(p.store_address), dict(p.data or {})) for p in quorum.participants]
        ids = [id for id, _, _ in members]
        names = tuple(id.partition("~")[0] for id in ids)
        if self.id not in ids:
            return None
        if any(name == self.name and id > self.id for id, name in zip(ids, names, strict=True)):
            self.leave()
            raise PeerError(
                f"Another process, which was started later, is the site '{self.name}' now, so this one ends; give "
                f"every site a name of its own."
            )
        if len(set(names)) < len(names):
            time.sleep(_BEAT)  # the older one is about to leave
            return None
        foreign = [name for name, (*_, data) in zip(names, members, strict=True) if said.keys() - data.keys()]
        if foreign:
            self._say(
                f"{foreign[0]} runs another version of Gossamer; waiting until it leaves; install the same version "
                f"everywhere"
            )
            self._pause(_BEAT)
            return None
        least = max(int(data["at_least"]) for _, _, data in members)
        if len(members) < least:
            self._say(f"{len(members)} of at least {least} sites are there ({', '.join(names)}); waiting for more")
            self._pause(_BEAT)
            return None
        expected = {name for _, _, data in members for name in data["expects"]} - set(names)
        if expected and not any(d["live"] for *_, d in members) and time.monotonic() - began < self.patience:
            self._say(f"waiting for {names_in_words(sorted(expected))}, who took part in the last checkpoint")
            self._pause(_BEAT)
            return None
        self._generation = 1 + max(int(data["generation"]) for _, _, data in members)
        digest = hashlib.sha256(" ".join(ids).encode()).hexdigest()[:16]
        rank = ids.index(self.id)
        group = None
        if len(ids) > 1:
            group = self._connect(members[0][1], f"{self._generation}/{digest}", rank, len(ids))
            if group is None:
                return None
        self._members = frozenset(ids)
        retry = time.monotonic() + max(_AGAIN, self.patience)
        self._passed_over = dict.fromkeys(self._strangers - self._members, retry)
        self._strangers = frozenset()
        return Gathering(names, rank, tuple(data for _, _, data in members), group)

    def _quorum(self, round: int, said: dict[str, Any]) -> Any:
        """The coordinator's answer; None if there was none, after saying so."""
        began, misses = time.monotonic(), self._misses
        wait = timedelta(seconds=_QUORUM)

        def ask() -> Any:
            return self._client(_ANSWER).quorum(
                self.id, wait, store_address=self._store_address(), step=round, data=said
            )

        def is_hopeless() -> bool:
            silent = time.monotonic() - max(self._heard, began)
            if silent > 2 * _ANSWER:
                self._say(f"the coordinator at {self.coordinator} does not answer; waiting for it")
            elif time.monotonic() - began > 3 * HEALTHY:
                self._say("waiting for the other sites to meet")
            # It did not answer for a while, and does again: the question may have been lost.
            return self._misses != misses and self._heard > began and silent < _BEAT + _ANSWER

        try:
            return self._in_background(ask, 2 * _QUORUM, is_hopeless)
        except (RuntimeError, OSError, ValueError) as error:
            log.debug("the coordinator: %s", error)
            if "connect" in str(error) or "transport" in str(error):
                self._say(f"the coordinator at {self.coordinator} cannot be reached; waiting for it")
            self._pause(_BEAT)
            return None

    def _connect(self, address: str, prefix: str, rank: int, size: int) -> ProcessGroupGloo | None:
        """A group with all others, who are about to connect too; None if not all of them come."""
        host, _, port = address.rpartition(":")
        mine, patience = self._address, timedelta(seconds=min(_CONNECT, self.patience))

        def connect() -> ProcessGroupGloo | None:
            deadline = time.monotonic() + patience.total_seconds()
            store = self._server if rank == 0 else None
            store = store or TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=patience)
            board = PrefixStore(prefix, store)
            keys = [f"here/{k}" for k in range(size)]
            board.set(keys[rank], "")
            while not board.check(keys):
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.005)
            options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
            options._timeout = patience
            options._devices = [ProcessGroupGloo.create_device(hostname=mine, lazy_init=False)]
            return ProcessGroupGloo(PrefixStore("gloo", board), rank, size, options)

        try:
            return self._in_background(connect, 3 * _CONNECT, lambda: False)
        except (RuntimeError, OSError, ValueError) as error:
            log.debug("connecting the sites: %s", error)
            return None

    # Inside ----------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Begin to tell that this site is there."""
        if self._server is None:
            # torch looks up the name of every host that connects, which may take long where there is no name server.
            os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
            self._server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        if self._gone is None:
            gone = self._gone = threading.Event()
            thread = threading.Thread(target=self._attend, args=(gone,), name="gossamer-sites", daemon=True)
            thread.start()
            Finalize(None, _end, args=(gone, thread), exitpriority=50)

    @property
    def _authority(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def _client(self, seconds: float) -> Any:
        return self._client_class(f"http://{self._authority}", timedelta(seconds=seconds))

    def _store_address(self) -> str:
        """Where others reach the store of this site: at the address from which it talks to the coordinator."""
        family = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family[0], socket.SOCK_DGRAM) as probe:
            probe.connect(family[4])
            self._address = str(probe.getsockname()[0])
        return f"{self._address}:{self._server.port if self._server else 0}"

    def _in_background(
        self, work: Callable[[], _Answer], seconds: float, is_hopeless: Callable[[], bool]
    ) -> _Answer | None:
        """What `work` returns or raises; None if it takes too long. This thread stays free to obey signals."""
        answers: list[_Answer] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                answers.append(work())
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="gossamer-sites-asks", daemon=True)
        deadline = time.monotonic() + seconds
        thread.start()
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.1)
            self.may_wait()
            if thread.is_alive() and is_hopeless():
                return None
        if errors:
            raise errors.pop()
        return answers.pop() if answers else None

    def _pause(self, seconds: float) -> None:
        self.may_wait()
        time.sleep(seconds)

    def _say(self, what: str) -> None:
        """One line in the log, and another one when the wait becomes long."""
        now = time.monotonic()
        if what != self._said[0] or now - self._said[1] > _REMIND:
            self._said = (what, now)
            log.warning("%s: %s.", self.name, what)


def _end(gone: threading.Event, thread: threading.Thread) -> None:
    """Before Python ends: a thread that comes back from the coordinator while it does would abort the process."""
    gone.set()
    thread.join(2 * _ANSWER)


def serve(host: str, port: int) -> Any:
    """The coordinator: it listens on one interface only. Keep what is returned."""
    server = _torchft().LighthouseServer
    bind = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        # A meeting ends when all sites that are alive have come; a short wait would divide them into two.
        return server(
            bind=bind,
            min_replicas=1,
            join_timeout_ms=60_000,
            quorum_tick_ms=50,
            heartbeat_timeout_ms=int(1000 * HEALTHY),
        )
    except RuntimeError as error:
        raise InputError(
            f"The coordinator cannot listen at {bind} ({str(error).splitlines()[0]}); give a free --port, and an "
            f"address of this machine as --host."
        ) from None


def names_in_words(names: Sequence[str]) -> str:
    """Names as a sentence lists them.

    >>> names_in_words(["bergen", "oslo", "tromso"])
    'bergen, oslo and tromso'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _torchft() -> Any:
    os.environ.setdefault("RUST_LOG", "error")  # else it tells every question in the log
    try:
        from torchft import _torchft
    except ImportError as error:
        raise InputError(
            f"Sites that come and go need torchft, which cannot be imported here ({error}); pip install "
            f"'gossamer[elastic]' on Linux with an x86_64 processor: there is no torchft for other systems."
        ) from None
    return _torchft


def _lighthouse_client() -> Any:
    return _torchft().LighthouseClient
