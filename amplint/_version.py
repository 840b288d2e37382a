"""The version, alone in its file so that `amplint --version` imports nothing else."""

VERSION = "0.1.0"
