"""Records eager PyTorch training as operator / storage / free traces (JSON-lines schema v1).

check.py and schema.py need no torch; everything else does.
"""


class RecorderError(Exception):
    """A failure that the user can act on; shown as one line, without a traceback."""
