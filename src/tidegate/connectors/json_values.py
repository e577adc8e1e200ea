"""Values that JSON cannot represent."""

from __future__ import annotations

import base64
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any


def as_text(value: Any) -> str:
    """Format times as ISO 8601, decimals digit by digit, bytes as base64."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
