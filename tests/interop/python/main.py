"""`python main.py BOOTSTRAP KIND` runs group members of one kind of client (see host.py)."""

import importlib
import sys

from host import serve

if __name__ == "__main__":
    importlib.import_module(sys.argv[2].replace("-", "_") + "_member")
    serve(sys.argv[1], sys.argv[2])
