"""What a program's processes listen on, as the kernel reports it (Linux)."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LISTENING = "0A"
_ACCEPTS_CONNECTIONS = 0x10000  # the flag of a listening socket in /proc/net/unix


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An open port."""

    process: int
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @property
    def is_loopback(self) -> bool:
        mapped = getattr(self.address, "ipv4_mapped", None)
        return (mapped or self.address).is_loopback


def family(process: int) -> dict[int, str]:
    """A process and all its descendants, sessions of their own included: their command lines."""
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # It has just ended.
                fields = (folder / "stat").read_text().rpartition(") ")[2].split()
                parents[int(folder.name)] = int(fields[1])
                sessions[int(folder.name)] = int(fields[3])
    found = {process}
    while more := {
        each
        for each in parents
        if each not in found and (parents[each] in found or sessions[each] in found)
    }:
        found |= more
    return {each: command_line(each) for each in sorted(found)}


def command_line(process: int) -> str:
    """What everybody on the machine can read of a process."""
    try:
        line = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return ""
    return line.replace(b"\0", b" ").decode(errors="replace").strip()


def listeners(processes: Iterable[int]) -> list[Listener]:
    """The TCP ports on which the processes accept connections."""
    owners = _owners(processes)
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            inode = int(fields[9])
            if fields[3] == _LISTENING and inode in owners:
                address, _, port = fields[1].partition(":")
                found.append(
                    Listener(process=owners[inode], address=_address(address), port=int(port, 16))
                )
    return found


def listening_files(processes: Iterable[int]) -> list[Path]:
    """The sockets in the file system on which the processes accept connections."""
    owners = _owners(processes)
    found = []
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & _ACCEPTS_CONNECTIONS and int(fields[6]) in owners:
            found.append(Path(fields[7]))
    return found


def answer_to(port: int, question: bytes, seconds: float = 2.0) -> bytes:
    """What a port of this machine says to a stranger; empty if it hangs up or keeps silent."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall(question)
        return connection.recv(4_096)
    return b""


def _owners(processes: Iterable[int]) -> dict[int, int]:
    """Sockets, by the number the kernel has for them, and who has them open."""
    owners = {}
    for process in processes:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    match = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
                    if match:
                        owners[int(match[1])] = process
    return owners


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel's spelling: words of four bytes, each in the machine's own order."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))
