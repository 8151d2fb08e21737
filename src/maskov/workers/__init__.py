"""Who carries out the tasks of a run: this process, several on this machine, or a Ray cluster."""

from maskov.workers.options import ENGINES, Workers

__all__ = ["ENGINES", "Workers"]
