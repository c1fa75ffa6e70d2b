"""`python -m harness` is `llama-harness`."""

import sys

from harness.cli import main

sys.exit(main())
