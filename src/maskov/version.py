"""The version of the package, where any module can import it."""

__version__ = "1.0.0"
