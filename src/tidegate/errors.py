"""All errors that tidegate raises, in ten families below `TidegateError`. `docs/reference/errors.md` says what to do about each.

    try:
        job.run(checkpoint=tg.Checkpointing(dir="s3://bucket/checkpoints", interval="10 s"))
    except tg.errors.RestoreError as error:
        print(error.code, error.retryable, error)

`errors.pyi` lists them. An error is imported when it is first used, since the module that defines it may be slow to import.
"""

from __future__ import annotations

from tidegate.core.public_names import PublicNames

_NAMES = PublicNames(__name__, "errors.pyi")
__all__ = _NAMES.all()


def __getattr__(name: str) -> object:
    found = globals()[name] = _NAMES.load(name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
