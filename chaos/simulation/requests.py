"""What an operator asks of a driver that runs: savepoints, a stop, a cancel, another parallelism."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from chaos.simulation.epochs import SimEpochs
from chaos.simulation.rescaling import SimRescale
from chaos.simulation.tasks import Host
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.job_log.entry import CheckpointRef, RunOutcome
from tidegate.core.clock import Instant
from tidegate.runtime.checkpoints.term import RunningTerm
from tidegate.runtime.checkpoints.term_effects import T, TermSteps

STOP_MS = 3_000
"""How long a stop waits for its output."""


class Edge(Protocol):
    """Carries out steps of the term."""

    def message(self, steps: TermSteps[T], alone: bool = False) -> Steps[T]:
        """A message, and what its driver sees of it. `alone`: the thread that runs epochs waits for it."""
        ...

    def run(self, steps: TermSteps[T], alone: bool = False) -> Steps[T]:
        """Steps inside a message."""
        ...


class SimRequests:
    """Those to one term."""

    def __init__(
        self,
        host: Host,
        term: RunningTerm,
        epochs: SimEpochs,
        edge: Edge,
        now: Callable[[], Instant],
        post: Callable[[CheckpointRequest], None],
    ) -> None:
        """`post` hands a request to the loop of the term."""
        self.stopped: tuple[CheckpointRef, Instant, Future[None]] | None = None
        """The savepoint that ended the job, since when its output is waited for, and the answer to that."""
        self.rescale: SimRescale | None = None
        """The rescale that is under way."""
        self._stop: Future[CheckpointRef] | None = None
        """The savepoint that is to end the job."""
        self._host = host
        self._post = post
        self._world = host.world
        self._plan = host.plan
        self._process = host.process
        self._term = term
        self._store = term.owned.store
        self._epochs = epochs
        self._edge = edge
        self._now = now
        self._answers: list[Future[CheckpointRef]] = []
        """The savepoints that the operator waits for."""

    @property
    def lets_run(self) -> bool:
        """Whether another epoch may begin."""
        return self.stopped is None and (self.rescale is None or self.rescale.lets_run)

    @property
    def is_stopping(self) -> bool:
        """Whether the job is asked to stop, and the savepoint for that has not failed."""
        return self._stop is not None and not (self._stop.done() and self._stop.exception() is not None)

    def take_savepoints(self) -> list[CheckpointRef]:
        """Return the savepoints that have been written since the last time."""
        done = [each for each in self._answers if each.done()]
        self._answers = [each for each in self._answers if each not in done]
        return [each.result() for each in done if each.exception() is None]

    def ask(self, kind: RequestKind, target: str | None = None) -> Steps[Future[CheckpointRef]]:
        request, answer = self._request(kind, target)
        if target is not None:
            self._answers.append(answer)
        yield from self._edge.message(self._term.checkpointer.request(request))
        return answer

    def _request(
        self, kind: RequestKind, target: str | None = None, forced: bool = False
    ) -> tuple[CheckpointRequest, Future[CheckpointRef]]:
        token = self._world.serial("request")
        answer = self._term.answers.expect(token)
        at_ms = self._now().monotonic_ms
        return CheckpointRequest(kind=kind, at_ms=at_ms, token=token, forced=forced, target=target), answer

    def _ask_meanwhile(self) -> Future[CheckpointRef]:
        """The thread of a rescale asks the loop for a checkpoint."""
        request, answer = self._request(RequestKind.MANUAL, forced=True)
        self._post(request)
        return answer

    def _begin_rescale(self, parallelism: int) -> None:
        if parallelism == self._host.width:
            return  # The product answers that nothing changes.
        if self.rescale is not None:
            self._world.tally.events["rescales refused"] += 1
            return
        self.rescale = SimRescale(
            self._host,
            self._term.owned,
            self._epochs,
            parallelism,
            ask=self._ask_meanwhile,
            stops=lambda: self.is_stopping,
        )
        steps = self.rescale.end_attempt()
        self._world.clock.after(0, lambda: self._world.spawn(self._process, steps))

    def end_of_attempt(self) -> SimRescale | None:
        """Return the rescale that the attempt has ended for, if it has."""
        rescale = self.rescale
        if rescale is None or rescale.outcome is None:
            return None
        self.rescale = None
        if rescale.outcome == "saved":
            return rescale
        self._world.tally.events[rescale.outcome] += 1
        return None

    def give_way(self) -> None:
        """The job goes back: its attempt ends, and a rescale that is under way with it."""
        if self.rescale is not None:
            self.rescale.give_way()
            self.rescale = None
            self._world.tally.events["rescales that gave way"] += 1

    def obey(self, order: str) -> Steps[str | None]:
        if order.startswith("rescale "):
            self._begin_rescale(int(order.removeprefix("rescale ")))
            return None
        kind = {"savepoint": RequestKind.SAVEPOINT, "stop": RequestKind.TERMINAL_SAVEPOINT}.get(order)
        if kind is not None:
            answer = yield from self.ask(kind, f"savepoints/{self._world.serial('savepoint')}")
            self._stop = answer if kind is RequestKind.TERMINAL_SAVEPOINT else self._stop
            return None
        if order == "cancel":
            yield from self._edge.message(self._term.checkpointer.finish(RunOutcome.CANCELED, keep=True), alone=True)
            self._world.tally.events["cancels"] += 1
        return order

    def wait_for_output(self) -> Steps[None]:
        """The savepoint that ends the job is in the log. Whoever stops it waits for its output."""
        ref = self._store.entry.base
        assert ref is not None
        answer: Future[None] = Future()
        self.stopped = ref, self._now(), answer
        yield from self._edge.run(self._term.output.complete_when_committed(answer))

    def ends(self) -> str | None:
        """How a stop answers, when it can: with success only if all its output is published."""
        if self.stopped is None:
            return None
        ref, since, answer = self.stopped
        if answer.done() and answer.exception() is None:
            self._world.tally.events["stops with savepoint"] += 1
            self._check_stopped(ref)
            return "stopped"
        if answer.done() or self._now().since(since) > STOP_MS:
            self._world.tally.events["stops that failed, with output waiting"] += 1
            return "stop failed"
        return None

    def _check_stopped(self, ref: CheckpointRef) -> None:
        world, lineage = self._world, self._store.entry.lineage
        visible = world.target(self._process.job).visible
        # By its content: a driver that has claimed the savepoint meanwhile may have deleted it.
        for epoch in world.epoch_of(ref).chain():
            for lane in epoch.output if epoch.lineage == lineage else ():
                if epoch.id not in visible[lane]:
                    world.fail(
                        f"{self._process.name} said that it stopped, and output of {lane} at {epoch.id} is missing"
                    )
        if ref.metadata not in world.storage.objects:
            return  # … and its record with it
        carries = world.metadata(world.storage.objects[ref.metadata]).committables
        if carries and self._plan.layout.committed(lineage, ref.term, ref.id) not in world.storage.objects:
            world.fail(f"{self._process.name} said that it stopped, and nothing records that its output is published")
