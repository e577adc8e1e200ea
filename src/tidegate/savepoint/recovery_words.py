"""What a user writes to say that a state or a field was renamed or is dropped: flags of a start, or arguments of the harness."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecoveryWords:
    """Templates of `str.format`."""

    drop_template: str
    rename_template: str
    state_template: str

    def drop(self, uid: str, state: str) -> str:
        """`state` may be `state:field`."""
        return self.drop_template.format(uid=uid, state=state)

    def state(self, uid: str, state: str) -> str:
        """How a state is named in these."""
        return self.state_template.format(uid=uid, state=state)

    def rename(self, uid: str, state: str, old: str, new: str) -> str:
        return self.rename_template.format(uid=uid, state=state, old=old, new=new)


FLAGS = RecoveryWords("--drop-state {uid}/{state}", "--renamed {uid}/{state}:{old}={new}", "{uid}/{state}")
HARNESS = RecoveryWords("drop_state=['{state}']", "renamed_fields={{'{state}': {{'{old}': '{new}'}}}}", "{state}")
