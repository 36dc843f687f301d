"""Simulated teleoperation: two planar arms, three cameras, known answers, and faults on request."""

from dyna_assets.simulate import camera_faults, clock_faults, joint_faults, upload_faults
from dyna_assets.simulate.faults import describe_fault, fault_names, plant
from dyna_assets.simulate.paint import paint_number, read_paint
from dyna_assets.simulate.record import RecordedUpload, record_uploads

__all__ = [
    "RecordedUpload",
    "camera_faults",
    "clock_faults",
    "describe_fault",
    "fault_names",
    "joint_faults",
    "paint_number",
    "plant",
    "read_paint",
    "record_uploads",
    "upload_faults",
]
