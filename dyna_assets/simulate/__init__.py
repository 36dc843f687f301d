"""Simulated teleoperation: two planar arms, three cameras, known answers, and faults on request."""

from dyna_assets.simulate.faults import describe_fault, fault_names, plant
from dyna_assets.simulate.paint import paint_number, read_paint
from dyna_assets.simulate.record import RecordedUpload, record_uploads

__all__ = [
    "RecordedUpload",
    "describe_fault",
    "fault_names",
    "paint_number",
    "plant",
    "read_paint",
    "record_uploads",
]
