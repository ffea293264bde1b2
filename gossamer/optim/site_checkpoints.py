"""How `Checkpoints` goes on among sites that come and go."""

import logging
import signal
from contextlib import suppress
from typing import Any, NoReturn

from gossamer._common import checkpoint_file as files
from gossamer.errors import GossamerError
from gossamer.optim.membership import Membership
from gossamer.optim.restart import NoCommonRound, rounds_to_reach_all

log = logging.getLogger("gossamer")


class AmongSites:
    """The part of a `Checkpoints`, the `saver`, that joins whoever is there and saves after every change of the sites.

    On a signal it leaves alone: the others go on. `carried` is what a site that was away takes from the others.
    """

    def __init__(self, saver: Any, membership: Membership, carried: dict[str, Any]) -> None:
        self._saver, self._membership = saver, membership
        self._changes = 0
        membership.model, membership.carried = saver.model, carried
        membership.sites.may_wait = self._leave_if_asked

    def resume(self) -> int:
        """Join the others: those that are under way, or all that have been started just now."""
        mine = self._saver._mine()
        newest = max(mine.rounds, default=None)
        saved = path = None
        if newest is not None:
            path = files.path_of(self._saver.directory, newest)
            saved = files.read(path)
            with files.taking_over(path):
                self._saver._load(saved, path)
        each_its_own = False
        while True:
            self._membership.saved, self._membership.saved_in = saved and saved["content"]["optimizer"], path
            self._membership.checkpointed = None if each_its_own else mine.nodes
            self._membership.regroup()
            self._saver._names = list(self._membership.names)
            self._saver._begun = self._saver.directory.is_dir()
            if each_its_own or not self._membership.began_together:
                files.remove_unfinished_checkpoints(self._saver.directory)
                self._saver.optimizer._outdated = False  # no gradient has been computed yet
                self._take_over_members()
                self._save_if_complete()
                self._changes = -1  # the others save when they have made this round: so does this site
                return int(self._saver.optimizer.round)
            try:
                round = int(self._saver._resume_together())
            except NoCommonRound:
                log.warning("There is no round of which all sites have a checkpoint: each goes on from its newest one.")
                each_its_own = True
                continue
            except GossamerError:
                if not self._saver.optimizer.network.failed:
                    raise
                continue
            self._membership.begin()
            return round

    def step(self) -> None:
        """Save if it is due or if sites have left or joined; on a signal this site leaves, and the others go on."""
        leaves = self._saver._interrupts.requested and self._membership.may_leave()
        changed = self._membership.changes != self._changes
        if changed:
            self._take_over_members()
        if leaves:
            self._saver.save()
            self._leave()
        if changed or self._saver.optimizer.round % self._saver.every == 0:
            self._save_if_complete()

    def _take_over_members(self) -> None:
        self._changes, self._saver._names = self._membership.changes, list(self._membership.names)
        self._saver._reach = rounds_to_reach_all(self._saver.optimizer.network.topology)
        self._saver.kept = -(-self._saver._reach // self._saver.every) + 2

    def _save_if_complete(self) -> None:
        """Save, unless a site has failed meanwhile: then all save when they have met."""
        net = self._saver.optimizer.network
        with suppress(GossamerError):
            net.drain()
        if not net.failed:
            self._saver.save()

    def _leave_if_asked(self) -> None:
        """While this site waits for others: a signal ends that."""
        if self._saver._interrupts.requested:
            self._leave()

    def _leave(self) -> NoReturn:
        self._membership.leave(drain=True)
        self._saver._interrupts.settle()
        number = self._saver._interrupts.signal or signal.SIGTERM
        log.warning(
            "%s asked %s to leave in round %d: the others go on, and it may come back.",
            signal.Signals(number).name,
            self._saver.name,
            self._saver.optimizer.round,
        )
        raise SystemExit(128 + number)
