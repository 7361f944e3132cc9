"""`spu-assigner doctor` from the start of its process to its end, with each seeded fault.

The limit on its checks is its own default; a broker that is silent takes all of it. Byte code is
there, as after any installation.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import QUICK, keep, spread
from support.doctor.installations import Installation, InstallationFactory, program
from support.doctor.seeds import SEEDS, slug
from support.kafka.secured import secured_broker

ROUNDS: Final = 1 if QUICK else 3
SEEDED: Final = SEEDS[::8] if QUICK else SEEDS
LIMIT_SECONDS: Final = 5.0


def examined(installation: Installation, byte_code: Path) -> tuple[float, dict[str, Any]]:
    """How long the process takes, and what it says."""
    environ = {**installation.environ, "PYTHONPYCACHEPREFIX": str(byte_code)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    begun = time.perf_counter()
    done = subprocess.run(
        [*program(installation), "--output=json"],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    seconds = time.perf_counter() - begun
    assert done.returncode in {0, 1}, done.stderr
    return seconds, json.loads(done.stdout)


def test_the_doctor_from_start_to_end(tmp_path: Path) -> None:
    """As somebody waits for it, or a script before a start."""
    seconds: dict[str, list[float]] = {"sound": []}
    missed: list[str] = []
    with ExitStack() as stack:
        kafka = stack.enter_context(EmbeddedBroker())
        (tmp_path / "secured").mkdir()
        secured = stack.enter_context(secured_broker(tmp_path / "secured"))
        factory = InstallationFactory(
            bootstrap=kafka.bootstrap_servers,
            secured=secured,
            folder=tmp_path / "factory",
            stack=stack,
        )
        factory.open()
        byte_code = tmp_path / "byte-code"
        sound = factory.sound(tmp_path / "sound")
        for number in range(ROUNDS * 3 + 1):
            taken, _ = examined(sound, byte_code)
            if number:  # The first run reads the files from disk, and writes byte code.
                seconds["sound"].append(taken)
        for seed in SEEDED:
            folder = tmp_path / slug(seed)
            folder.mkdir()
            installation = seed.prepare(factory, folder)
            for _ in range(ROUNDS):
                taken, report = examined(installation, byte_code)
                seconds.setdefault(slug(seed), []).append(taken)
                codes = {each["code"] for check in report["checks"] for each in check["findings"]}
                if not {*seed.codes.split()} <= codes:
                    missed.append(slug(seed))
    slowest = {name: max(values) for name, values in seconds.items()}
    keep(
        "doctor",
        sizes={"seeded_faults": len(SEEDED), "limit_s": LIMIT_SECONDS},
        figures={
            "found": len(SEEDED) - len({*missed}),
            "missed": sorted({*missed}),
            "within_limit": sum(value <= LIMIT_SECONDS for value in slowest.values()),
            "examined": len(slowest),
            "slowest": max(slowest, key=slowest.__getitem__),
            "all_s": spread([each for values in seconds.values() for each in values]),
            **{f"{name}_s": spread(values) for name, values in seconds.items()},
        },
    )
