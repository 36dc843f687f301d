"""Open an MCAP file as what it is.

opened = open_episode(uri)   # an Episode, a ForeignEpisode or a ForeignFile
"""

from __future__ import annotations

from pathlib import Path

import fsspec

from dyna_train.episode.foreign import ForeignFile
from dyna_train.episode.foreign_episode import ForeignEpisode
from dyna_train.episode.index import INDEX_NAME, EpisodeIndex
from dyna_train.episode.profile import RECORD_PROFILE
from dyna_train.episode.reader import Episode
from dyna_train.episode.tail import attachment_data
from dyna_train.errors import EpisodeError


def open_episode(
    uri: str | Path, fs: fsspec.AbstractFileSystem | None = None
) -> Episode | ForeignEpisode | ForeignFile:
    """Open the MCAP file at `uri`: an episode file, an episode that another tool wrote anew, or any other.

    Raises EpisodeError for an absent file or one that is no MCAP, TruncatedEpisode, CorruptEpisode.
    """
    file = ForeignFile.open(uri, fs)
    try:
        if not is_episode_file(file):
            return ForeignEpisode.of(file) if RECORD_PROFILE in file.metadata else file
    except EpisodeError:
        file.close()
        raise
    file.close()
    return Episode.open(uri, fs)


def is_episode_file(file: ForeignFile) -> bool:
    """Whether the file has our index, and the index names the chunks that the file has.

    A tool that copies attachments copies the index too, with the places of the old file. Raises CorruptEpisode
    for an index that is damaged.
    """
    place = file.contents.attachments.get(INDEX_NAME)
    if place is None:
        return False
    (record,) = file.source.read([(place.offset, place.offset + place.length)])
    index = EpisodeIndex.from_bytes(attachment_data(file.uri, record, place), uri=file.uri)
    named = {
        (offset, length)
        for table in index.chunks.values()
        for offset, length in zip(table.offset_K.tolist(), table.length_K.tolist(), strict=True)
    }
    found = {(chunk.chunk_start_offset, chunk.chunk_length) for chunk in file.contents.chunk_indexes}
    return named == found
