"""The system's own Chromium, which keeps to itself: it is given nothing to look up or update."""

from __future__ import annotations

import shutil

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def launch(playwright):
    """Start a browser."""
    return playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
