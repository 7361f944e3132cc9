"""The lock of jars, and what becomes of a jar that is not what the lock says."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from spu_assigner.stream.local.jvm.jars import GROUPS, Group, Jar, JarError, ensure_all, read_lock
from support.kafka.registry_server import serving
from support.project.jars_lock import ROOTS

_GROUP: Group = "spark-local"
_CONTENT = b"the jar's bytes"


def _jar(content: bytes = _CONTENT) -> Jar:
    return Jar(
        coordinate="org.example:tool:1.0",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
    )


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A world whose only repository is a folder with one jar, and an empty cache."""
    module = tmp_path / "repository" / "org" / "example" / "tool" / "1.0"
    module.mkdir(parents=True)
    (module / "tool-1.0.jar").write_bytes(_CONTENT)
    return {
        "SPU_ASSIGNER_CACHE": str(tmp_path / "cache"),
        "SPU_ASSIGNER_MAVEN_URL": (tmp_path / "repository").as_uri(),
    }


def _ensure(environ: dict[str, str], jars: Sequence[Jar]) -> list[Path]:
    return ensure_all([_GROUP], environ, lock={_GROUP: jars})[_GROUP]


def test_the_lock_holds_every_root_with_a_hash() -> None:
    """A root without a locked jar would be a class not found, much later."""
    lock = read_lock()
    assert tuple(lock) == GROUPS
    for group, roots in ROOTS.items():
        coordinates = {jar.coordinate for jar in lock[group]}
        assert {root.coordinate for root in roots} <= coordinates
        assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in lock[group])
        assert len({jar.file_name for jar in lock[group]}) == len(lock[group])
    assert len(lock["broker"]) == 46  # Kafka's 45 and what makes it log


def test_a_jar_is_fetched_once_and_then_found(environ: dict[str, str], tmp_path: Path) -> None:
    """The second start needs no network; another user's executor may read the driver's cache."""
    (path,) = _ensure(environ, [_jar()])
    assert path.read_bytes() == _CONTENT
    assert path.stat().st_mode & 0o444 == 0o444
    assert path.parent.stat().st_mode & 0o555 == 0o555
    shutil.rmtree(tmp_path / "repository")
    assert _ensure(environ, [_jar()]) == [path]


def test_a_jar_with_another_hash_is_refused_and_not_kept(environ: dict[str, str]) -> None:
    """Whatever changed it on the way may have changed it for the worse."""
    with pytest.raises(JarError, match=r"org\.example:tool:1\.0 has SHA-256 .*: deleted"):
        _ensure(environ, [_jar(b"what was locked")])
    assert list(Path(environ["SPU_ASSIGNER_CACHE"]).rglob("*.jar")) == []


def test_a_jar_damaged_in_the_cache_is_fetched_again(environ: dict[str, str]) -> None:
    """Disks fail, and a cache is touched by many; the same size must not hide it."""
    (path,) = _ensure(environ, [_jar()])
    path.write_bytes(_CONTENT[::-1])
    assert [found.read_bytes() for found in _ensure(environ, [_jar()])] == [_CONTENT]


def test_what_cannot_be_fetched_is_named_with_what_to_do(environ: dict[str, str]) -> None:
    """Without a network, or with a misspelt address, in one line and without a password."""
    absent = Jar(coordinate="org.example:absent:2.0", sha256="0" * 64, size=1)
    for repository in (environ["SPU_ASSIGNER_MAVEN_URL"], "https://eve:secret@127.0.0.1:9/m", "x"):
        with pytest.raises(JarError) as caught:
            _ensure({**environ, "SPU_ASSIGNER_MAVEN_URL": repository}, [absent])
        message = str(caught.value)
        assert message.startswith("org.example:absent:2.0 could not be fetched from ")
        assert "SPU_ASSIGNER_MAVEN_URL" in message
        assert "secret" not in message
        assert "\n" not in message


def test_a_mirror_is_given_the_user_that_its_address_names(environ: dict[str, str]) -> None:
    """Mirrors of companies have users."""
    asked: list[tuple[str, str | None]] = []

    class Mirror(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(_CONTENT)

    with serving(Mirror) as url:
        environ["SPU_ASSIGNER_MAVEN_URL"] = url.replace("//", "//eve:pass%20word@")
        (path,) = _ensure(environ, [_jar()])
    assert path.read_bytes() == _CONTENT
    user = base64.b64encode(b"eve:pass word").decode()
    assert asked == [("/org/example/tool/1.0/tool-1.0.jar", f"Basic {user}")]
