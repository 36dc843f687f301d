"""Files of a bag that cannot be read where they lie: copied or unpacked to a temporary folder."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import zstandard

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.base import damage_named, open_file

BLOCK_BYTES = 1 << 20
PACKED_BYTES = 8 << 10
"""Read of packed data at a time: they unpack to 256 MiB at most, however they were made."""
SPARE_BYTES = 1 << 30
"""What stays free on the disk of temporary files."""


def copied(folder: Folder, name: str, place: Path) -> Path:
    """A copy of the file `name` in the folder `place`. Raises OSError (ENOSPC) before the disk is full."""
    target = place / os.path.basename(name)
    with open_file(folder, name) as file, target.open("wb") as copy:
        need_room(place, file.seek(0, 2))
        file.seek(0)
        shutil.copyfileobj(file, copy, BLOCK_BYTES)
    return target


def unpacked(folder: Folder, name: str, place: Path) -> Path:
    """The zstd file `name`, unpacked in the folder `place`. Raises RecordingError if it is cut or damaged."""
    where = folder.at(name)
    target = place / os.path.basename(name).removesuffix(".zstd")
    with open_file(folder, name) as file, target.open("wb") as copy:
        num_bytes = 0
        for block in unpack(lambda: file.read(PACKED_BYTES), where):
            if num_bytes // SPARE_BYTES != (num_bytes + len(block)) // SPARE_BYTES or not num_bytes:
                need_room(place, SPARE_BYTES)
            copy.write(block)
            num_bytes += len(block)
    return target


def unpack(read: Callable[[], bytes], where: str) -> Iterator[bytes]:
    """zstd frames, unpacked block by block. Raises RecordingError if the last one is cut, or bytes are damaged."""
    with damage_named((zstandard.ZstdError,), lambda error: f"{where}: cannot be unpacked: {error}"):
        unpacker = zstandard.ZstdDecompressor().decompressobj()
        data = read()
        while data or unpacker.eof:
            if unpacker.eof:  # another frame may follow
                data = unpacker.unused_data or read()
                if not data:
                    return
                unpacker = zstandard.ZstdDecompressor().decompressobj()
            yield unpacker.decompress(data)
            data = b"" if unpacker.eof else read()
    raise RecordingError(f"{where}: the file ends inside its compressed data: it was cut, upload it again")


def need_room(place: Path, num_bytes: int) -> None:
    """Raises OSError (ENOSPC), which no recording is blamed for, if the disk lacks room for `num_bytes` more."""
    free = shutil.disk_usage(place).free
    if free < num_bytes + SPARE_BYTES:
        text = f"{num_bytes:,} bytes and {SPARE_BYTES:,} to spare are needed for a temporary copy, {free:,} are free"
        raise OSError(errno.ENOSPC, text, str(place))
