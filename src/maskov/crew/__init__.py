"""Who takes the turns of a run: this process, several on this machine, or a Ray cluster."""

from maskov.crew.base import Crew, Job
from maskov.crew.choice import ENGINES, Workers, crew_for

__all__ = ["ENGINES", "Crew", "Job", "Workers", "crew_for"]
