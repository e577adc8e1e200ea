"""How a driver comes to rest when faults have stopped, so that what is stored then can be judged."""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulation.epochs import SimEpochs
from chaos.simulation.requests import Edge, SimRequests
from chaos.simulation.tasks import Host, SimTasks
from tidegate.checkpoint.coordination.requests import RequestKind
from tidegate.checkpoint.effects import Steps
from tidegate.core.clock import Instant
from tidegate.runtime.checkpoints.term import RunningTerm


class WindDown:
    """That of one term."""

    def __init__(
        self,
        host: Host,
        term: RunningTerm,
        tasks: SimTasks,
        epochs: SimEpochs,
        requests: SimRequests,
        edge: Edge,
        *,
        rewind: Callable[[], Steps[None]],
        asked: Callable[[], int],
        now: Callable[[], Instant],
    ) -> None:
        """`asked` counts the requests that the term has made to storage."""
        self._world = host.world
        self._plan = host.plan
        self._process = host.process
        self._width = host.width
        self._term = term
        self._store = term.owned.store
        self._tasks = tasks
        self._epochs = epochs
        self._requests = requests
        self._edge = edge
        self._rewind = rewind
        self._asked = asked
        self._now = now
        self._quiet_since: Instant | None = None

    def proceed(self) -> Steps[bool]:
        """Save the last epoch, commit everything, sweep. Return whether nothing is left to do."""
        store, checkpointer = self._store, self._term.checkpointer
        base = store.entry.base
        if self._plan.origin is not None and base is not None and base.owned and (yield from self._holds_origin()):
            return False
        if self._world.storage.below(self._plan.layout.pins):
            return False  # a fork still reads from us
        if not self._epochs.ran or base is None or not self._epochs.are_contained or not base.owned:
            if not checkpointer.pending:
                yield from self._requests.ask(RequestKind.MANUAL)
            return False
        if self._tasks.holds and not checkpointer.pending:
            self._quiet_since = None
            if self._term.uploads.materialized:  # a checkpoint is needed that they are part of
                yield from self._requests.ask(RequestKind.MANUAL)
        elif len(store.ledger) or checkpointer.pending or self._epochs.running is not None:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = self._now()
        elif self._now().since(self._quiet_since) > 1_200:  # uploads for subsumed checkpoints have landed
            yield from self._clean_to_the_end()
            self._world.note(self._process.name, "at rest")
            return True
        return False

    def _holds_origin(self) -> Steps[bool]:
        """Whether the pin is still there on what the job, a fork, began from, although it has a checkpoint of its own."""
        assert self._plan.origin is not None
        origin, pin = self._plan.origin
        if origin.pin(pin) not in self._world.storage.objects:
            return False
        if self._process.pin is not None:
            # This term has placed it or found it. If storage did not remove it, the next checkpoint tries again.
            if not self._term.checkpointer.pending:
                yield from self._requests.ask(RequestKind.MANUAL)
            return True
        if origin.pin(pin) not in self._world.left_pins:
            self._world.fail(f"{self._process.name} finds a pin on its origin, and no term that held it has ended")
        # A term ended before it had removed it. The operator sees it, and takes it away.
        self._world.tally.events["pins that a term left when it ended"] += 1
        self._world.watch(origin).unpin(pin)
        self._world.storage.apply_delete([origin.pin(pin)])
        return False

    def _clean_to_the_end(self) -> Steps[None]:
        """Nothing moves any more. Have the term clean up what there is to clean up, with all its parts."""
        store = self._store
        acks, lowest_id = self._plan.layout.all_acks(store.term), self._term.checkpointer.in_flight().lowest_id
        ended = [path for path in self._world.storage.below(acks) if self._number_of(path) < lowest_id]
        yield from self._clean_until_quiet()
        if left := [path for path in ended if path in self._world.storage.objects]:
            self._world.fail(
                f"{self._process.name} has cleaned up, and acknowledgements stay that nobody needs: {left[:5]}"
            )
        # Files may have landed after the sweeps for which there was a reason. Whatever goes back gives the next reason.
        yield from self._rewind()
        self._epochs.ran = True  # Nothing is lost: the checkpoint contains all.
        yield from self._clean_until_quiet()

    def _number_of(self, path: str) -> int:
        file = self._plan.layout.parse(path)
        assert file is not None
        return file.number

    def _clean_until_quiet(self) -> Steps[None]:
        """As after so many checkpoints, each with a slice of a sweep."""
        for _ in range(2 * self._width + 100):
            before = self._asked()
            yield from self._edge.message(self._term.checkpointer.clean())
            if self._asked() - before <= 1:  # It looks for stored acknowledgements every time.
                return
        self._world.fail(f"{self._process.name} cleans up and comes to no end")
