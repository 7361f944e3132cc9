"""What C code has freed goes back to the system, though pieces between live on."""

from __future__ import annotations

from pathlib import Path

from spu_assigner.stream.common.native_memory import trim_memory


def test_what_is_freed_goes_back() -> None:
    pieces = [bytes([1]) * 4_000 for _ in range(20_000)]
    kept, pieces = pieces[::50], []
    held = int(Path("/proc/self/statm").read_text().split()[1])
    trim_memory()
    assert held - int(Path("/proc/self/statm").read_text().split()[1]) > 10_000, len(kept)
