"""What a consumer of the chaos run keeps; `tests/transaction/test_three_consumers.py` runs three of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.consumer import Sink


def test_a_sink_keeps_what_is_given_again_once(tmp_path: Path) -> None:
    class Death(Exception):
        pass

    def dies() -> None:
        raise Death

    with pytest.raises(Death):
        Sink(tmp_path / "sink.db").keep("1-2", ["a", "b"], dies)
    again = Sink(tmp_path / "sink.db")
    assert again.keep("1-2", ["a", "b"])
    assert not again.keep("1-2", ["a", "b"])
    assert again.logs() == ["a", "b"]
