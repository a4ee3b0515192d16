"""`python -m perf.switch_interval SECONDS start ...`: runs the command kafkapy with another switch interval."""

import sys

from kafkapy.network import socket_server
from kafkapy.tools.main import main

if __name__ == "__main__":
    socket_server.SWITCH_INTERVAL_S = float(sys.argv.pop(1))
    sys.exit(main())
