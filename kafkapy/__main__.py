"""`python -m kafkapy`: the same as the command `kafkapy`."""

import sys

from kafkapy.tools.main import main

if __name__ == "__main__":
    sys.exit(main())
