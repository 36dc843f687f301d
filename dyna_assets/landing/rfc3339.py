"""Times as RFC 3339 writes them, to the nanosecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d{2}):(\d{2}))"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_rfc3339_ns(text: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 time with its offset, exact. Raises ValueError."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected RFC 3339 with an offset, such as 2026-03-01T09:30:00Z, found {text!r}")
    day, clock, fraction, zulu, sign, hours, minutes = match.groups()
    local = datetime.fromisoformat(f"{day}T{clock}+00:00")
    offset = timedelta() if zulu else timedelta(hours=int(hours), minutes=int(minutes))
    since = local - _EPOCH - (-offset if sign == "-" else offset)
    whole_s = since.days * 86_400 + since.seconds
    return whole_s * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def format_rfc3339(time_ns: int) -> str:
    """RFC 3339 in UTC with nine digits, the inverse of `parse_rfc3339_ns`."""
    seconds, ns = divmod(time_ns, 1_000_000_000)
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"
