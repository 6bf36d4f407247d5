"""`python -m exporter`."""

import sys

# Python puts the working directory first, in which a json.py may lie. This package
# has been found already.
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

from exporter.cli import main

sys.exit(main())
