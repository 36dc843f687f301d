"""Figures of the episode file that count: bytes, errors, chunks, requests. No clock enters into them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from mcap.reader import make_reader

from benchmarks._chunked import ChunkedFile, DistantStore
from benchmarks._codecs import AV1, JPEG, label
from benchmarks._making import ARCHIVE, DEFAULT, TRAIN, Cameras, Made, mean_mb, mean_psnr
from benchmarks._readers import read_encoded
from benchmarks._windows import Window, all_windows
from benchmarks.harness import Figure
from dyna_train.episode.index import INDEX_NAME
from dyna_train.episode.reader import Episode


def storage(made: Made) -> list[Figure]:
    """Bytes, each beside its crf and its error."""
    equal, soft_equal, archive = label(made.equal), label(made.soft_equal), label(ARCHIVE)
    kept = {"HDF5 JPEG q80": JPEG, f"LeRobot {AV1}": AV1}
    kept |= {f"ours {label(quality)}": label(quality) for quality in (ARCHIVE, DEFAULT, TRAIN)}
    mb = {name: mean_mb(made.minute, one) for name, one in kept.items()}
    psnr_db = {name: mean_psnr(made.minute, one) for name, one in kept.items()}
    ours_db = mean_psnr(made.minute, equal)
    margin_db = ours_db - mean_psnr(made.minute, JPEG)
    return [
        Figure("storage.vs_jpeg", _saved(made.minute, equal), f"% at {equal}", -80.0, -88.0),
        Figure("storage.psnr_over_jpeg", margin_db, f"dB at {equal}", 0.0, direction=">="),
        Figure("storage.archive_vs_jpeg", _saved(made.minute, archive), f"% at {archive}", -68.0),
        Figure("storage.soft_vs_jpeg", _saved(made.soft, soft_equal), f"% at {soft_equal}"),
        Figure("storage.mb_per_camera_minute", mean_mb(made.minute, equal), f"MB at {equal}", peers=mb),
        Figure("storage.psnr", ours_db, f"dB at {equal}", peers=psnr_db),
    ]


def fetches(made: Made) -> list[Figure]:
    """Chunks that hold something of a window, and what our reader asks for instead; all windows there are.

    The published ratio is of video at the bitrate of `archive`; what training reads is `train`.
    """
    every = all_windows(made.take.header.num_steps)
    archive_chunks, archive_mb = touched(chunked_files(made, "archive"), every)
    chunks, mb = touched(chunked_files(made, "train"), every)
    at, archive = f"at {label(TRAIN)}", f"at {label(ARCHIVE)}"
    ratio, archive_ratio = (one["per topic"] / one["ours"] for one in (chunks, archive_chunks))
    return [
        Figure("fetches.per_topic_over_ours", archive_ratio, f"ratio {archive}", 3.4, direction=">="),
        Figure("fetches.chunks", archive_chunks.pop("ours"), f"chunks {archive}", peers=archive_chunks),
        Figure("fetches.chunk_mb", archive_mb.pop("ours"), f"MB {archive}", peers=archive_mb),
        Figure("fetches.train_per_topic_over_ours", ratio, f"ratio {at}"),
        Figure("fetches.train_chunks", chunks.pop("ours"), f"chunks {at}", peers=chunks),
        Figure("fetches.train_chunk_mb", mb.pop("ours"), f"MB {at}", peers=mb),
        *requests(made, every),
    ]


def touched(
    files: Mapping[str, ChunkedFile], samples: Sequence[Window]
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean number of chunks a window touches, and their mean MB, by file."""
    chunks, mb = {}, {}
    for name, file in files.items():
        numbers = [file.touched(one) for one in samples]
        chunks[name] = statistics.fmean(map(len, numbers))
        mb[name] = statistics.fmean(map(file.num_bytes, numbers)) / 1e6
    return chunks, mb


def requests(made: Made, samples: Sequence[Window]) -> list[Figure]:
    """What our reader asks of a remote store: to open a file nobody knows anything of, and for a sample."""
    with Episode.open(made.path("train"), fs=DistantStore(0.0, 1e12)) as episode:
        counters = episode.counters
        opened, opened_bytes = counters.requests, counters.bytes
        for one in samples:
            read_encoded(episode, one)
        asked = (counters.requests - opened) / len(samples)
        read_mb = (counters.bytes - opened_bytes) / len(samples) / 1e6
    needed_mb = needed_bytes(made, samples) / 1e6
    return [
        Figure("requests.per_sample", asked, "requests", 1.0, 1.0),
        Figure("requests.mb", read_mb, f"MB at {label(TRAIN)}", limit=needed_mb),
        Figure("open.requests", opened, "requests", 1.0, 1.0),
        Figure("open.bytes", opened_bytes, "bytes", 65536.0),
    ]


def index(made: Made) -> list[Figure]:
    """What a file says about itself."""
    with made.path("train").open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None
    (attachment,) = (one for one in summary.attachment_indexes if one.name == INDEX_NAME)
    return [
        Figure("index.attachment_bytes", attachment.data_size, "bytes", 10_000.0),
        Figure("index.gop_table_bytes", len(made.file.gop_table), "bytes"),
    ]


def chunked_files(made: Made, quality: str) -> dict[str, ChunkedFile]:
    """Our file and the stock ones at `train` or `archive`, as a reader of whole chunks sees them."""
    names = {"ours": quality, "per topic": f"{quality}.topic", "stock, by arrival": f"{quality}.arrival"}
    return {shown: ChunkedFile.open(made.path(name), made.layout.gop) for shown, name in names.items()}


def needed_bytes(made: Made, samples: Sequence[Window]) -> float:
    """Mean bytes of the packets that a decoder must see and of the floats that are wanted."""
    total = 0
    for one in samples:
        fed = one.fed_steps(made.layout.gop)
        total += sum(len(packets[step]) for packets in made.take.packets.values() for step in fed)
        total += sum(values_TD[one.state_steps_H].nbytes for values_TD, _ in made.take.vectors.values())
    return total / len(samples)


def _saved(cameras: Cameras, name: str) -> float:
    """Bytes of an encoding less those of JPEG, in percent of these."""
    return 100 * (mean_mb(cameras, name) / mean_mb(cameras, JPEG) - 1)
