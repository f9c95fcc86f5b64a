"""common.py - makes tests/clients/wire.py known here: checks, connections and vectors are the same."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clients"))
