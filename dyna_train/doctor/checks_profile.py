"""Checks of what the file says of itself: profile, stamps, header, schemas and channels."""

from __future__ import annotations

from collections.abc import Iterator

from mcap.opcode import Opcode
from mcap.records import Channel

from dyna_train.doctor.case import Case
from dyna_train.doctor.channel_rules import group_of, is_complete, problems_of
from dyna_train.doctor.check import Finding, check
from dyna_train.episode.profile import (
    DEPTH_GROUP,
    EVENT_GROUP,
    GRID_GROUPS,
    GROUPS,
    PROFILE,
    RECORD_EPISODE,
    RECORD_PROFILE,
    RECORD_QC,
    RECORD_SYNC,
    RECORD_VERSIONS,
    STATE_GROUP,
    VIDEO_GROUP,
)
from dyna_train.episode.schemas import (
    DEPTH_SCHEMA,
    EVENT_SCHEMA,
    JSON,
    PROTOBUF,
    VECTOR_SCHEMA,
    VIDEO_SCHEMA,
    schemas,
)

FRONT = (RECORD_PROFILE, RECORD_VERSIONS, RECORD_EPISODE)
"""Metadata records that stand before the first chunk too, so that a cut file knows whose it is."""
END = (*FRONT, RECORD_QC, RECORD_SYNC)
STAMPS = ("schema_version", "pipeline_version")
_SCHEMA_OF = {
    VIDEO_GROUP: (VIDEO_SCHEMA, PROTOBUF),
    STATE_GROUP: (VECTOR_SCHEMA, PROTOBUF),
    DEPTH_GROUP: (DEPTH_SCHEMA, PROTOBUF),
    EVENT_GROUP: (EVENT_SCHEMA, JSON),
}


@check("profile.records")
def profile_records(case: Case) -> Iterator[Finding]:
    """The metadata records of the profile stand at the end, and those that say whose file it is in front too."""
    survey = case.survey
    first_chunk = survey.chunks[0].record.at if survey.chunks else survey.summary_at
    records = survey.of_kind(Opcode.METADATA)
    front = {record.content.name: record for record in records if record.at < first_chunk}
    end = {record.content.name: record for record in records if record.at > first_chunk}
    for name in FRONT:
        if name not in front and not survey.is_damaged(0, first_chunk):
            yield Finding(f"metadata record {name} before the first chunk", "none")
    for name in END:
        if name not in end and not survey.is_damaged(first_chunk, survey.summary_at):
            yield Finding(f"metadata record {name} after the last chunk", "none")
    for name in FRONT:
        if name in front and name in end and front[name].content.metadata != end[name].content.metadata:
            what = f"{name} as before the first chunk: {front[name].content.metadata}"
            yield Finding(what, f"{end[name].content.metadata}", byte=end[name].at)


@check("profile.name")
def profile_name(case: Case) -> Iterator[Finding]:
    """The file says which profile it keeps."""
    found = case.survey.metadata.get(RECORD_PROFILE)
    if found is not None and f"{found.get('name')}/{found.get('version')}" != PROFILE:
        yield Finding(f"profile {PROFILE}", str(dict(found)))


@check("profile.header")
def profile_header(case: Case) -> Iterator[Finding]:
    """Episode record and channels describe an episode."""
    survey = case.survey
    if case.header is None and RECORD_EPISODE in survey.metadata and case.channels:
        yield Finding("an episode record and channels that describe an episode", case.header_problem)
    if not case.channels and not survey.damages:
        yield Finding("channels", "none")


@check("profile.stamps")
def profile_stamps(case: Case) -> Iterator[Finding]:
    """The file says by which versions it was made, so that one can tell whether it is stale."""
    versions = case.survey.metadata.get(RECORD_VERSIONS)
    if versions is None:
        return
    for name in STAMPS:
        if not versions.get(name):
            yield Finding(
                f"{RECORD_VERSIONS} with {name}", f"only {', '.join(versions) or 'an empty record'}"
            )


@check("channel.metadata")
def channel_metadata(case: Case) -> Iterator[Finding]:
    """Every channel says what its topic is, completely."""
    for channel in case.channels:
        for expected, found in problems_of(channel):
            yield Finding(expected, found, topic=channel.topic)


@check("channel.rate")
def channel_rates(case: Case) -> Iterator[Finding]:
    """All topics on the grid have the grid's rate, and all cameras one GOP length."""
    if case.header is None:
        return
    for channel in _described(case, *GRID_GROUPS):
        for name in ("rate_hz", "fps"):
            value = channel.metadata.get(name)
            if value is not None and float(value) != case.header.rate_hz:
                yield Finding(f"{name} {case.header.rate_hz}, as the episode", value, topic=channel.topic)
    gops = {channel.topic: channel.metadata["gop"] for channel in _described(case, VIDEO_GROUP)}
    expected = str(case.index.layout.gop) if case.index else next(iter(gops.values()), "")
    for topic, gop in gops.items():
        if gop != expected:
            yield Finding(f"GOP {expected}, as the index or the first camera", gop, topic=topic)


@check("channel.order")
def channel_order(case: Case) -> Iterator[Finding]:
    """Channel ids count the topics from 1: cameras, vectors, depths, events, extras; each topic once."""
    if case.survey.damages:
        return
    known = [channel for channel in case.channels if group_of(channel)]
    ordered = sorted(known, key=lambda channel: (GROUPS.index(group_of(channel)), channel.id))
    for number, channel in enumerate(ordered, start=1):
        if channel.id != number:
            yield Finding(f"channel id {number}", f"{channel.id}", topic=channel.topic)
    topics = [channel.topic for channel in case.channels]
    for topic in sorted({topic for topic in topics if topics.count(topic) > 1}):
        yield Finding("one channel", f"{topics.count(topic)}", topic=topic)


@check("channel.schema")
def channel_schemas(case: Case) -> Iterator[Finding]:
    """Every topic has the schema of its group, word for word."""
    ours = {schema.name: schema for schema in schemas()}
    for channel in case.channels:
        if group_of(channel) not in _SCHEMA_OF:
            continue
        name, encoding = _SCHEMA_OF[group_of(channel)]
        if channel.message_encoding != encoding:
            what = f"message encoding {encoding}"
            yield Finding(what, repr(channel.message_encoding), topic=channel.topic)
        schema = case.survey.schemas.get(channel.schema_id)
        if schema is None:
            if not case.survey.damages:
                yield Finding(f"schema {name}", f"no schema {channel.schema_id}", topic=channel.topic)
        elif schema.name != name or schema.encoding != ours[name].encoding:
            found = f"{schema.name} in {schema.encoding}"
            yield Finding(f"schema {name} in {ours[name].encoding}", found, topic=channel.topic)
        elif schema.data != ours[name].data:
            what = f"the {len(ours[name].data):,} bytes of our schema {name}"
            yield Finding(what, f"{len(schema.data):,} bytes that differ", topic=channel.topic)


def _described(case: Case, *groups: str) -> list[Channel]:
    """The complete channels of these groups."""
    return [channel for channel in case.channels if group_of(channel) in groups and is_complete(channel)]
