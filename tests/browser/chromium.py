"""The system's own Chromium, which keeps to itself: it is given nothing to look up or update."""

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


class Visits:
    """Pages that are watched: what they ask for, and what they complain of."""

    def __init__(self, browser) -> None:
        self._browser, self._contexts = browser, []
        self.complaints: list[str] = []
        self.addresses: set[str] = set()

    def page(self, **view):
        """Open an empty page of its own."""
        context = self._browser.new_context(**view)
        context.set_default_timeout(90_000)  # on a busy machine, too
        self._contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: self.addresses.add(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        return page

    def close(self) -> None:
        """Close all pages."""
        for context in self._contexts:
            context.close()
