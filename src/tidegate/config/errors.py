"""What can be wrong with a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.errors import ConfigurationError


class OptionError(ConfigurationError):
    """The configuration cannot be used. All that is wrong with it is said at once."""

    code = "OPTION"

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        head = "" if len(problems) == 1 else f"Correct or remove {len(problems)} options: "
        super().__init__(head + " · ".join(problems))


@dataclass(frozen=True, slots=True)
class OptionNote:
    """Something about a usable configuration that its author should know: no effect, an old key, a raised value."""

    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}: {self.text}"
