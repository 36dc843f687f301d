"""LeRobot data sets, v2.0 and v2.1 (`v21`) and v3.0 (`v30`): both list episodes, which `recording` opens. `metadata`
is what their lists share.
"""
