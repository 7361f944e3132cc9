"""The release of this product: shown by the command line and written into each marker."""

from __future__ import annotations

from typing import Final

RELEASE: Final = "1.0.0.dev0"  # as in pyproject.toml; a test holds them together
