"""The per-user cache: what is fetched or built once and shared by every checkout.

Rules: whoever writes holds the cache's lock; what is there under its final name is whole, since it
is renamed into place.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from spu_assigner.core.base.errors import AssignerError

CACHE_VARIABLE: Final = "SPU_ASSIGNER_CACHE"


class CacheError(AssignerError):
    """The cache cannot be written."""


def cache_home(environ: Mapping[str, str] | None = None) -> Path:
    """The cache's folder: `SPU_ASSIGNER_CACHE`, else `spu-assigner` under the user's cache folder.
    It need not exist yet."""
    environ = os.environ if environ is None else environ
    if named := environ.get(CACHE_VARIABLE):
        return Path(named).expanduser().absolute()
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / "spu-assigner"
    return Path.home() / ".cache" / "spu-assigner"


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the cache's lock: a second process waits. The kernel frees it should the holder die."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(home / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as reason:
        raise CacheError(
            f"the cache {home} cannot be written ({reason.strerror}); "
            f"name another folder with {CACHE_VARIABLE}"
        ) from reason
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def scratch(home: Path) -> Iterator[Path]:
    """A folder inside the cache, on the same disk as what is renamed out of it; gone afterwards."""
    with TemporaryDirectory(prefix=".scratch-", dir=home, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def made_once(home: Path, final: Path, make: Callable[[Path], Path]) -> Path:
    """What stands at `final`; where it is missing, made in a scratch folder under the lock."""
    if not final.exists():
        with locked(home):
            if not final.exists():  # Another process may have made it while this one waited.
                with scratch(home) as folder:
                    put_in_place(make(folder), final)
    return final


def key_of(parts: Iterable[str]) -> str:
    """A name for what is made from these parts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def class_path_key(paths: Iterable[Path]) -> list[str]:
    """What a JVM compares of each jar with the archive that was made from it: its time, too."""
    keys = []
    for path in paths:
        try:
            found = path.stat()
            keys.append(f"{path} {found.st_size} {int(found.st_mtime)}")
        except OSError:  # What starts from the class path reports it.
            keys.append(f"{path} -")
    return keys


def put_in_place(new: Path, final: Path) -> None:
    """Rename a whole file or folder to its final name; what stood there before is replaced."""
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.is_dir() and not final.is_symlink():
        shutil.rmtree(final)
    new.rename(final)
