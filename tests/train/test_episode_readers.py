"""Independent readers open our files, whatever is in them: python mcap, Rerun, and @mcap/core under node.

The messages are decoded by stock protobuf runtimes, from the schemas in the file alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_episodes import Script, full_script
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from mcap.reader import NonSeekingReader, SeekingReader
from mcap.records import DataEnd, Footer, Schema
from mcap.stream_reader import StreamReader

from dyna_train.episode.profile import EVENT_TOPIC

NUM_STEPS = 50
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> Script:
    return full_script(NUM_STEPS)


@pytest.fixture(scope="module")
def path(script, tmp_path_factory) -> Path:
    return script.write(tmp_path_factory.mktemp("episode") / "full.mcap").path


def num_messages(script: Script) -> Counter[str]:
    """By topic, without those that have none."""
    counts = Counter({topic: int(has_T.sum()) for topic, has_T in script.has_T.items()})
    counts.update(dict.fromkeys(script.vectors, script.header.num_steps))
    counts[EVENT_TOPIC] = len(script.events)
    counts.update(topic for topic, _ in script.extra_messages)
    return counts


@pytest.mark.parametrize("reader", [SeekingReader, NonSeekingReader])
def test_python_mcap_accepts_every_checksum_and_finds_every_message(path, script, reader):
    with path.open("rb") as stream:
        messages = reader(stream, validate_crcs=True).iter_messages()
        counts = Counter(channel.topic for _, channel, _ in messages)
    assert counts == num_messages(script)


def test_python_mcap_reads_every_record_to_the_closing_magic_with_checksums(path, script):
    with path.open("rb") as stream:
        records = list(StreamReader(stream, validate_crcs=True).records)
        assert stream.read() == b""
        stream.seek(0)
        statistics = SeekingReader(stream).get_summary().statistics
    assert sum(isinstance(record, DataEnd) and record.data_section_crc != 0 for record in records) == 1
    assert isinstance(records[-1], Footer) and records[-1].summary_crc != 0
    assert statistics.message_count == num_messages(script).total()
    assert statistics.channel_count == len(script.header.topics) + 1 + len(script.extras)


def decoder(schema: Schema) -> Any:
    """The message class that the stock runtime makes of a schema record."""
    files = descriptor_pb2.FileDescriptorSet.FromString(schema.data)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))


def test_the_stock_protobuf_runtime_decodes_every_message_by_the_schema_in_the_file(path, script):
    found: dict[str, dict[int, Any]] = {}
    with path.open("rb") as stream:
        for schema, channel, message in SeekingReader(stream).iter_messages():
            if channel.message_encoding == "protobuf":
                decoded = decoder(schema).FromString(message.data)
                assert decoded.ByteSize() <= len(message.data)
                found.setdefault(channel.topic, {})[message.sequence] = decoded
    assert set(found) == set(script.header.topics)
    for topic, (values_TD, _) in script.vectors.items():
        assert np.array_equal([found[topic][step].values for step in range(NUM_STEPS)], values_TD)
    for track in (*script.header.cameras, *script.header.depths):
        images = found[track.topic]
        assert list(images) == np.flatnonzero(script.has_T[track.topic]).tolist()
        for step, image in images.items():
            assert image.timestamp.ToNanoseconds() == script.capture_ns[track.topic][step]
            assert image.frame_id == track.name
    for camera in script.header.cameras:
        assert all(
            image.format == "h264" and image.data.startswith((b"\0\0\0\1", b"\0\0\1"))
            for image in found[camera.topic].values()
        )
    for depth in script.header.depths:
        for step, image in found[depth.topic].items():
            assert (image.encoding, image.step) == ("16UC1", 2 * depth.width)
            picture = np.frombuffer(image.data, "<u2").reshape(image.height, image.width)
            assert np.array_equal(picture, script.depth(depth)[step])


def test_events_are_json_that_says_what_happened(path, script):
    with path.open("rb") as stream:
        messages = list(SeekingReader(stream).iter_messages([EVENT_TOPIC]))
    for (schema, channel, message), event in zip(messages, script.events, strict=True):
        assert (schema.encoding, channel.message_encoding) == ("jsonschema", "json")
        assert set(json.loads(message.data)) == set(json.loads(schema.data)["properties"])
        assert (message.log_time, json.loads(message.data)) == (
            event.time_ns,
            {"name": event.name, "data": event.data},
        )


RERUN = Path(sys.executable).with_name("rerun")


def rerun(home: Path, *arguments: str | Path) -> str:
    """What the command prints; a real process, offline."""
    if not RERUN.is_file():
        pytest.skip(f"no rerun command at {RERUN}; it comes with the dev extra")
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "NO_COLOR": "1"}
    done = subprocess.run(
        [RERUN, *arguments], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERROR" not in done.stderr, done.stderr
    return done.stdout


def test_rerun_checks_every_topic_without_an_issue(path, script, tmp_path):
    report = rerun(tmp_path, "mcap", "check", "--full", path)
    lines = {
        line.split()[3]: line.split() for line in report.splitlines() if "/" in line and line.startswith("ok")
    }
    expected = {*script.header.topics, EVENT_TOPIC}
    assert expected <= set(lines), report
    assert all(lines[topic][-1] == "—" for topic in expected), report


def test_rerun_counts_our_messages_and_schemas(path, script, tmp_path):
    report = rerun(tmp_path, "mcap", "info", path)
    for name in ("foxglove.CompressedVideo", "foxglove.RawImage", "dyna.JointVector", "dyna.Event"):
        assert name in report
    total = str(num_messages(script).total())
    assert any(line.split()[:2] == ["Messages", total] for line in report.splitlines()), report


def test_rerun_converts_cameras_to_video_streams_depth_to_images_and_vectors_to_values(
    path, script, tmp_path
):
    converted = tmp_path / "full.rrd"
    rerun(tmp_path, "mcap", "convert", path, "-o", converted)
    printed = rerun(tmp_path, "rrd", "print", "-vv", converted)
    assert "VideoStream:sample" in printed and "Image:buffer" in printed
    for topic in (*script.header.topics, EVENT_TOPIC):
        assert topic in printed


NODE_READER = """
const fs = require("fs");
const { McapIndexedReader, McapStreamReader } = require("@mcap/core");
const { loadDecompressHandlers } = require("@mcap/support");
const protobuf = require("protobufjs");
const { FileDescriptorSet } = require("protobufjs/ext/descriptor");

async function main(path) {
  const data = new Uint8Array(fs.readFileSync(path));
  const decompressHandlers = await loadDecompressHandlers();
  const readable = {
    size: async () => BigInt(data.length),
    read: async (offset, size) => data.slice(Number(offset), Number(offset + size)),
  };
  const reader = await McapIndexedReader.Initialize({ readable, decompressHandlers });
  const types = new Map();
  for (const [id, schema] of reader.schemasById) {
    if (schema.encoding === "protobuf") {
      types.set(id, protobuf.Root.fromDescriptor(FileDescriptorSet.decode(schema.data)).lookupType(schema.name));
    }
  }
  const counts = {}, times = {};
  for await (const message of reader.readMessages({ validateCrcs: true })) {
    const channel = reader.channelsById.get(message.channelId);
    counts[channel.topic] = (counts[channel.topic] ?? 0) + 1;
    const type = types.get(channel.schemaId);
    const timestamp = type?.decode(message.data).timestamp;
    if (timestamp) {
      const time = BigInt(timestamp.seconds.toString()) * 1000000000n + BigInt(timestamp.nanos);
      (times[channel.topic] ??= []).push(time.toString());
    }
  }
  const stream = new McapStreamReader({ decompressHandlers, validateCrcs: true });
  stream.append(data);
  let streamed = 0;
  for (let record; (record = stream.nextRecord()); ) streamed += record.type === "Message";
  const attachments = [];
  for await (const attachment of reader.readAttachments({ validateCrcs: true })) attachments.push(attachment.name);
  const rest = stream.done() ? stream.bytesRemaining() : -1;
  console.log(JSON.stringify({ counts, times, streamed, rest, attachments }));
}
main(process.argv[1]);
"""


def node_read(path: Path) -> dict[str, Any]:
    """What the readers of @mcap/core find; the packages come by NODE_PATH or from beside the checkout."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    places = [os.environ.get("NODE_PATH", ""), *(str(one / "node_modules") for one in (ROOT, ROOT.parent))]
    env = {**os.environ, "NODE_PATH": os.pathsep.join(filter(None, places))}

    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [node, "-e", code, *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)

    packages = ("@mcap/core", "@mcap/support", "protobufjs")
    if run("".join(f"require('{name}');" for name in packages)).returncode:
        pytest.skip(f"node does not find {', '.join(packages)}: npm install them and set NODE_PATH")
    done = run(NODE_READER, str(path))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_mcap_core_under_node_reads_and_decodes_every_message_with_checksums(path, script):
    found = node_read(path)
    expected = num_messages(script)
    assert (found["counts"], found["streamed"], found["rest"]) == (expected, expected.total(), 0)
    assert found["attachments"] == ["dyna.capture/1", "dyna.index/1"]
    for track in (*script.header.cameras, *script.header.depths):
        capture_T = script.capture_ns[track.topic][script.has_T[track.topic]]
        assert [int(time) for time in found["times"][track.topic]] == capture_T.tolist()
