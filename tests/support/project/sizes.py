"""The sizes that CONTRIBUTING.md limits: `make sizes` prints them beside their limits.

Status 1 if a limit is passed, so that it can be asked in CI.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
from spu_assigner.stream.cli import cli

ROOT: Final = Path(__file__).parents[3]
PRODUCT: Final = ("core", "schemas", "stream")  # what the wheel holds
PRODUCT_LINES_MAX: Final = 40_000
TEST_LINES_MAX: Final = 48_000
FOLDER_FILES_MAX: Final = 16
FOLDER_LINES_MAX: Final = 5_500
PAGE_LINES_MAX: Final = 200
README_BYTES_MAX: Final = 12 * 1024
WORDS_MAX: Final = 30_000
OPTIONS_MAX: Final = 250
SHARED_OPTIONS: Final = {"bootstrap_servers", "topic_prefix", "config", "output"}


class Size(NamedTuple):
    """One figure; `limit` None: it is only shown."""

    what: str
    found: int
    limit: int | None


def tracked(*folders: str) -> list[Path]:
    """The Python files of these folders that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *(f"{folder}/*.py" for folder in folders)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return [ROOT / name for name in listed]


def lines_of(paths: list[Path]) -> int:
    """All lines of the files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def by_package() -> dict[str, int]:
    """Lines of each package of the product."""
    lines: Counter[str] = Counter()
    for path in tracked(*PRODUCT):
        lines[path.parent.relative_to(ROOT).as_posix()] += lines_of([path])
    return dict(lines.most_common())


def options_by_command() -> dict[str, int]:
    """How many options each command has; those that most commands have are the program's."""
    found: dict[str, int] = {}

    def count(name: str, command: click.Command) -> None:
        options = {each.name for each in command.params if isinstance(each, click.Option)}
        found[name] = len(options - SHARED_OPTIONS)
        if isinstance(command, click.Group):
            context = click.Context(command)
            for inner in command.list_commands(context):
                part = command.get_command(context, inner)
                if part is not None:
                    count(f"{name} {inner}", part)

    count("spu-assigner", cli)
    found["spu-assigner"] += len(SHARED_OPTIONS)
    return found


def words_of_documentation() -> int:
    """Words of the pages of the root and of docs/, as `wc -w` counts them."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def sizes() -> Iterator[Size]:
    """What is limited, and the sums."""
    yield Size("product: lines of Python", lines_of(tracked(*PRODUCT)), PRODUCT_LINES_MAX)
    yield Size("tests and benches: lines of Python", lines_of(tracked("tests")), TEST_LINES_MAX)
    folders = Counter(path.parent for path in tracked(*PRODUCT, "docker", "tests"))
    yield Size("most Python files in one folder", max(folders.values()), FOLDER_FILES_MAX)
    most = max(by_package().values())
    yield Size("most lines of Python in one package", most, FOLDER_LINES_MAX)
    for page in ("README.md", "ARCHITECTURE.md"):
        yield Size(f"{page}: lines", lines_of([ROOT / page]), PAGE_LINES_MAX)
    yield Size("options of all commands", sum(options_by_command().values()), OPTIONS_MAX)
    yield Size("README.md: bytes", (ROOT / "README.md").stat().st_size, README_BYTES_MAX)
    yield Size("documentation: words", words_of_documentation(), WORDS_MAX)


def main() -> int:
    """Print both tables."""
    for package, lines in by_package().items():
        print(f"{package:<24}{lines:>8,}")
    missed = 0
    print()
    for size in sizes():
        limit = "" if size.limit is None else f"   at most {size.limit:,}"
        missed += size.limit is not None and size.found > size.limit
        print(f"{size.what:<38}{size.found:>8,}{limit}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
