"""The hooks of a function: its own variables are saved to and restored from operator state, and it is notified what became of
checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.core.hooks import hook
from tidegate.core.ids import EpochId
from tidegate.graph.listening import ABORTED, COMPLETE, notified_by
from tidegate.graph.states import Distribution
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.state.accessors.operator_states import OperatorStates

_DEFAULT = "_default_"
"""The list of a `ListCheckpointed` function."""


class _Initialization:
    """The context of `initialize_state`."""

    def __init__(self, states: OperatorStates) -> None:
        self._states = states

    def is_restored(self) -> bool:
        return self._states.restored

    def get_operator_state_store(self) -> _Initialization:
        return self

    def get_list_state(self, name: str) -> Any:
        return self._states.state(name, Distribution.SPLIT)

    def get_union_list_state(self, name: str) -> Any:
        return self._states.state(name, Distribution.UNION)

    def get_broadcast_state(self, name: str) -> Any:
        return self._states.state(name, Distribution.BROADCAST)


class _Snapshot:
    """The context of `snapshot_state`."""

    def __init__(self, epoch: EpochId | None, clock_ms: int) -> None:
        self._id = 0 if epoch is None else epoch.as_checkpoint_id
        self._clock_ms = clock_ms

    def get_checkpoint_id(self) -> int:
        return self._id

    def get_checkpoint_timestamp(self) -> int:
        return self._clock_ms


class FunctionHooks:
    """The hooks of one function in one attempt. Does nothing for a function without such methods."""

    def __init__(
        self, name: str, function: Any, states: OperatorStates | None, epoch: EpochId | None, clock_ms: int
    ) -> None:
        """Operator state is attached to the function already."""
        self._name = name
        self._function = function
        self._notified = notified_by(function)
        self._states = states
        self._epoch = epoch
        self._clock_ms = clock_ms
        self._by_list = states is not None and _DEFAULT in states.lists and hook(function, "restore_state") is not None

    def initialize(self) -> None:
        """Called before `open`."""
        if self._states is None:
            return
        try:
            if self._by_list:
                # A `ListCheckpointed` function is not asked on a fresh start, as in Flink.
                if self._states.restored:
                    self._function.restore_state(self._states.lists[_DEFAULT].stored())
            elif method := hook(self._function, "initialize_state"):
                method(_Initialization(self._states))
        except Exception as error:
            raise FunctionFailed(self._name, error) from error

    def notify(self, notices: Iterable[CheckpointNotice]) -> None:
        """Called after `open`, before the first row."""
        for notice in notices:
            try:
                if method := hook(self._notified, COMPLETE if notice.complete else ABORTED):
                    method(notice.checkpoint_id)
            except Exception as error:
                raise FunctionFailed(self._name, error) from error

    def snapshot(self) -> None:
        """Called after the last row and timer of an epoch, before `close`."""
        if self._states is None:
            return
        context = _Snapshot(self._epoch, self._clock_ms)
        try:
            if self._by_list:
                kept = self._function.snapshot_state(context.get_checkpoint_id(), self._clock_ms)
                self._states.lists[_DEFAULT].update(kept)
            elif method := hook(self._function, "snapshot_state"):
                method(context)
        except Exception as error:
            raise FunctionFailed(self._name, error) from error
