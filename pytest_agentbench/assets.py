"""Archives and file lists out of dataset rows, read as if they were hostile.

Nothing is extracted to disk: the members of an archive are read into memory, with limits, and what
a row asks for is written into the workspace under checked names.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import tarfile
import unicodedata
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["AssetError", "SeedFile", "pack", "safe_name", "unpack", "write_files"]

#: Limits of an archive after inflating.
MAX_TOTAL = 64 * 1024 * 1024
MAX_FILE = 32 * 1024 * 1024
MAX_MEMBERS = 2000
#: Extended headers (long names, pax records) larger than this are an attack on memory.
MAX_HEADER = 64 * 1024
MAX_PATH, MAX_PART, MAX_DEPTH = 1024, 255, 64
_BLOCK = 512
_SET_ID = 0o6000
#: Names that some systems take for devices.
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))]
)


class AssetError(Exception):
    """An archive or a file list cannot be used; the message says which member and why."""


@dataclass(frozen=True, slots=True)
class SeedFile:
    """A file to put into a workspace: its checked POSIX name, its bytes, whether it may be run."""

    name: str
    data: bytes
    executable: bool = False


def safe_name(name: str) -> str:
    """*name* as a relative POSIX path that stays inside, without ``.`` parts and doubled slashes.

    Raises
    ------
    AssetError
        It is empty, absolute, leads out, is too long or deep, or holds characters that would be
        something else on another system.
    """
    shown = repr(name[:80])
    if "\0" in name or any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise AssetError(f"the name {shown} holds control characters")
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise AssetError(f"the name {shown} is not UTF-8") from None
    if name.startswith("/"):
        raise AssetError(f"the name {shown} is absolute")
    if "\\" in name or name[1:2] == ":":
        raise AssetError(f"the name {shown} holds a backslash or a drive letter")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise AssetError(f"the name {shown} leads out of the directory")
    if not parts:
        raise AssetError(f"the name {shown} names no file")
    if size > MAX_PATH or len(parts) > MAX_DEPTH:
        raise AssetError(f"the name {shown} is too long or too deep")
    for part in parts:
        if len(part.encode("utf-8")) > MAX_PART:
            raise AssetError(f"the name {shown} has a part that is too long")
        if part.rstrip(". ") != part or part.partition(".")[0].lower() in _DEVICES:
            raise AssetError(f"the name {shown} is not the same on every system")
    return "/".join(parts)


class Names:
    """Names seen so far; one that clashes with another on some system is refused."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], tuple[bool, str]] = {}

    def add(self, name: str, *, directory: bool = False) -> None:
        """Take *name*, and its directories.

        Raises
        ------
        AssetError
            It is there already, differs from another one in case or Unicode form only, or would
            lie under a file.
        """
        parts = name.split("/")
        key = tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)
        for depth in range(1, len(parts)):
            self._put(key[:depth], True, "/".join(parts[:depth]), name)
        if not directory and key in self._seen:
            raise AssetError(f"the name {name!r} stands twice, or clashes with another")
        self._put(key, directory, name, name)

    def _put(self, key: tuple[str, ...], directory: bool, name: str, wanted: str) -> None:
        if self._seen.setdefault(key, (directory, name)) != (directory, name):
            raise AssetError(f"the name {wanted!r} clashes with {self._seen[key][1]!r}")


def unpack(text: str) -> dict[str, SeedFile]:
    """The files of a base64 text of a ``tar.gz``, by name.

    Regular files and directories only.  Owners and times are ignored, and of the modes all but
    whether the owner may run a file.

    Raises
    ------
    AssetError
        Not base64, not gzip, not tar, cut off, too large, or a member that may not be there.
    """
    try:
        packed = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise AssetError(f"is not base64: {error}") from None
    data = _inflate(packed)
    _check_headers(data)
    files: dict[str, SeedFile] = {}
    names = Names()
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:", errors="surrogateescape") as archive:
            for count, member in enumerate(archive, 1):
                if count > MAX_MEMBERS:
                    raise AssetError(f"the archive has more than {MAX_MEMBERS} members")
                if member.isdir() and member.name.strip("/") in ("", "."):
                    continue  # "./"
                name = safe_name(member.name.rstrip("/") if member.isdir() else member.name)
                _check_member(member, name)
                names.add(name, directory=member.isdir())
                if member.isdir():
                    continue
                total += member.size
                if total > MAX_TOTAL:
                    raise AssetError(f"the archive holds more than {MAX_TOTAL >> 20} MiB")
                source = archive.extractfile(member)
                content = source.read() if source is not None else b""
                if len(content) != member.size:
                    raise AssetError(f"the member {name!r} is cut off")
                files[name] = SeedFile(name, content, bool(member.mode & 0o100))
    except AssetError:
        raise
    except Exception as error:  # tarfile raises ten kinds on malformed headers
        raise AssetError(f"is not a usable tar archive: {type(error).__name__}: {error}") from None
    return files


def _check_member(member: tarfile.TarInfo, name: str) -> None:
    if member.issym() or member.islnk():
        raise AssetError(f"the member {name!r} is a link")
    if member.issparse():
        raise AssetError(f"the member {name!r} is a sparse file")
    if not (member.isreg() or member.isdir()):
        raise AssetError(f"the member {name!r} is neither a file nor a directory")
    if member.mode & _SET_ID:
        raise AssetError(f"the member {name!r} has a set-id bit")
    if not 0 <= member.size <= MAX_FILE:
        raise AssetError(f"the member {name!r} is larger than {MAX_FILE >> 20} MiB")


def _inflate(packed: bytes) -> bytes:
    """All gzip members of *packed*, whose checksums are right, up to the limit."""
    limit = MAX_TOTAL + (MAX_MEMBERS + 20) * 3 * _BLOCK
    out = bytearray()
    while True:
        inflater = zlib.decompressobj(wbits=31)
        try:
            out += inflater.decompress(packed, limit + 1 - len(out))
        except zlib.error as error:
            raise AssetError(f"is not gzip: {error}") from None
        if len(out) > limit:
            raise AssetError(f"the archive is larger than {MAX_TOTAL >> 20} MiB when inflated")
        if not inflater.eof:
            raise AssetError("is not gzip: it is cut off")
        packed = inflater.unused_data.lstrip(b"\0")
        if not packed:
            return bytes(out)


def _check_headers(data: bytes) -> None:
    """Refuse large extended headers and sparse files before any library reads them."""
    position = 0
    while position + _BLOCK <= len(data):
        header = data[position : position + _BLOCK]
        if not any(header):
            return
        kind = header[156:157]
        try:
            size = tarfile.nti(header[124:136])  # type: ignore[attr-defined]
        except tarfile.TarError:
            return  # what is wrong with it the library will tell
        if kind in b"xXgLK" and size > MAX_HEADER:
            raise AssetError(f"the archive has an extended header of {size} bytes")
        if kind == b"S" or (
            kind in b"xXg" and b"GNU.sparse" in data[position : position + size + _BLOCK]
        ):
            raise AssetError("the archive holds a sparse file")
        if size < 0:
            return
        position += _BLOCK + -(-size // _BLOCK) * _BLOCK


def pack(files: Mapping[str, bytes]) -> str:
    """The base64 text of a ``tar.gz`` with *files*; the same files give the same text."""
    import gzip

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(raw.getvalue())
    return base64.b64encode(packed.getvalue()).decode("ascii")


def seed_files(entries: Sequence[object], assets: Mapping[str, SeedFile]) -> list[SeedFile]:
    """What a list of ``{path, content}`` and ``{source, dest}`` entries puts into a workspace.

    ``source`` is looked up among *assets*; a directory there is taken whole.  A ``dest`` that ends
    in a slash keeps the source's name.

    Raises
    ------
    AssetError
        Naming the entry by its number, from 1.
    """
    files: list[SeedFile] = []
    names = Names()
    for number, entry in enumerate(entries, 1):
        try:
            for file in _entry(entry, assets):
                names.add(file.name)
                files.append(file)
        except AssetError as error:
            raise AssetError(f"entry {number}: {error}") from None
    return files


def _entry(entry: object, assets: Mapping[str, SeedFile]) -> Iterable[SeedFile]:
    if not isinstance(entry, Mapping):
        raise AssetError(f"expected an object, found {type(entry).__name__}")
    inline = "content" in entry
    if inline and ("source" in entry or "dest" in entry):
        raise AssetError("it has both a content and a source")
    wanted = ("path", "content") if inline else ("source", "dest")
    for key in wanted:
        if not isinstance(entry.get(key), str):
            found = f"found {type(entry[key]).__name__}" if key in entry else "it is missing"
            raise AssetError(f"expected a text under {key!r}, {found}")
    if inline:
        try:
            data = entry["content"].encode("utf-8")
        except UnicodeEncodeError:
            raise AssetError("its content is not text (a lone surrogate)") from None
        return [SeedFile(safe_name(entry["path"]), data)]
    return _copied(entry["source"], entry["dest"], assets)


def _copied(source: str, dest: str, assets: Mapping[str, SeedFile]) -> Iterable[SeedFile]:
    name = safe_name(source)
    if dest.endswith("/"):
        dest += name.rpartition("/")[2]
    target = safe_name(dest)
    if name in assets:
        return [SeedFile(target, assets[name].data, assets[name].executable)]
    below = [asset for asset in assets if asset.startswith(f"{name}/")]
    if not below:
        raise AssetError(f"the source {source!r} is not among the row's assets")
    return [
        SeedFile(f"{target}{asset[len(name) :]}", assets[asset].data, assets[asset].executable)
        for asset in below
    ]


def write_files(directory: Path, files: Iterable[SeedFile]) -> None:
    """Write *files* below the empty *directory*, following no link and replacing nothing."""
    made = {""}
    root = os.fspath(directory)
    for file in files:
        parent = file.name.rpartition("/")[0]
        if parent not in made:
            os.makedirs(f"{root}/{parent}", exist_ok=True)
            made.add(parent)
        mode = 0o755 if file.executable else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(f"{root}/{file.name}", flags, mode)
        with os.fdopen(fd, "wb") as out:
            out.write(file.data)
