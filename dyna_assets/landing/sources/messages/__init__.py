"""What timed messages are, whatever file they lie in: ROS 2 (CDR), protobuf and JSON as pictures, video and vectors.
Start at `recording`, which makes a recording of any `file.MessageFile`; `encodings` tells what a topic is.
"""
