"""The commands of `dyna-train`, one file each; what is heavy is loaded when a command runs."""
