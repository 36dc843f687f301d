"""The commands of `dyna-train`, one file a family; what is heavy is loaded when a command runs."""
