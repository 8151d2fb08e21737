"""The version of the package, where any module can import it."""

__version__ = "0.1.0"
