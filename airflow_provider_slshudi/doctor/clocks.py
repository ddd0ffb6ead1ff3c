"""Clocks that should agree."""

from __future__ import annotations

from airflow_provider_slshudi.doctor.finding import Seen, ok, warning, wrong

_AGREE_SECONDS = 5.0


def compared(ahead: float, whose: str, stops: bool) -> Seen:
    """This machine's clock beside another's, by the seconds that it is ahead; `stops` if pipelines stop for it."""
    if abs(ahead) <= _AGREE_SECONDS:
        return ok(f"this machine's and {whose} agree to {_AGREE_SECONDS:.0f} s")
    what = f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {whose}"
    mend = "set the one that is wrong, and keep both by NTP"
    return wrong(what, mend) if stops else warning(what, mend)
