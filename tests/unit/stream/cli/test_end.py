"""How a command's process ends, when it has threads that nobody waited for."""

from __future__ import annotations

import subprocess
import sys

# An answer of Kafka's client that comes when the interpreter is gone ends the process by SIGSEGV.
# The C library is made to wait a second at the very end, for the answer to come by then; the
# check's client gives up half a second after the check was given up.
_SILENT_CHECK = """
import ctypes

libc = ctypes.CDLL(None)
if hasattr(libc, "on_exit"):
    libc.on_exit(libc.sleep, None)  # so many seconds as the exit status is

from confluent_kafka.admin import AdminClient
from spu_assigner.stream import cli
from spu_assigner.stream.audit.doctor import checks

def never_answered(look):
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    admin.list_consumer_groups(request_timeout=1.0).result()

never = checks.DoctorCheck(name="never", look=never_answered, roles=tuple(checks.Role))
checks.run_checks.__defaults__ = ((never,),)
"""


def test_a_check_that_is_not_waited_for_harms_no_end() -> None:
    command = [sys.executable, "-c", f"{_SILENT_CHECK}cli.main()"]
    options = ["doctor", "--role", "consumer", "--timeout", "0.5"]
    done = subprocess.run(
        [*command, *options], capture_output=True, check=False, text=True, timeout=120
    )
    assert "the check of never did not end in time" in " ".join(done.stdout.split())
    assert done.returncode == 1, done.stderr
