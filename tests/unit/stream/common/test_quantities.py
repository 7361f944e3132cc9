"""Bytes and rates as people write and read them."""

from __future__ import annotations

import pytest
from spu_assigner.stream.common.quantities import byte_rate, byte_size, bytes_text, duration_text


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50MB/s", 50_000_000),
        ("50MiB/s", 52_428_800),
        ("1.5 gb", 1_500_000_000),
        ("20000000", 20_000_000),
        ("1B/s", 1),
        (" 3kib/s ", 3_072),
    ],
)
def test_a_rate_is_read(text: str, rate: int) -> None:
    """A throttle is given by a person; a factor of 1.05 is within what was meant, 1000 is not."""
    assert byte_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "fast", "0", "0.5", "-1MB/s", "50MB/h", "50XB/s", "9999999PB/s", "1e9", "nan"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    """A throttle of nothing would stop replication."""
    with pytest.raises(ValueError, match="expected bytes per second"):
        byte_rate(text)


def test_a_size_is_read_and_has_no_second() -> None:
    """A limit of bytes may be nothing; a rate is none."""
    assert (byte_size("50GB"), byte_size("0"), byte_size("1.5 KiB")) == (50_000_000_000, 0, 1_536)
    for text in ("", "50GB/s", "-1", "9999999PB"):
        with pytest.raises(ValueError, match="expected bytes, such as 50GB"):
            byte_size(text)


def test_bytes_and_times_are_shown_in_the_units_that_fit() -> None:
    """As other tools of Kafka show them; an estimate of a day to the second would be no better."""
    sizes = {0: "0 B", 1_023: "1023 B", 1_024: "1.0 KiB", 5_872_025: "5.6 MiB"}
    assert {size: bytes_text(size) for size in sizes} == sizes
    times = {0: "0 s", 0.2: "1 s", 59.1: "1 min", 61: "1 min 1 s", 3_600: "1 h"}
    times |= {7_384: "2 h 3 min", 100_000: "1 d 3 h"}
    assert {seconds: duration_text(seconds) for seconds in times} == times
