"""What is asked of more than one page: views, numbers as shown, and checks that hold everywhere."""

from pathlib import Path

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
DESKTOP = {"viewport": {"width": 1200, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
# What can be pressed, as far as it is in sight.
_PRESSED = "a[href], button:not(:disabled), select, input, summary, [tabindex='0']"


def as_number(text: str) -> float:
    """Read a number as pages show it."""
    return float(text.replace("−", "-").replace("∞", "inf"))


def ground(page) -> str:
    """Return the colour behind everything."""
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def assert_tab_reaches_everything(page) -> None:
    """Press Tab through the page and count where it stops."""
    wanted = page.evaluate(
        "(which) => [...document.querySelectorAll(which)]"
        ".filter((one) => one.checkVisibility()).length",
        _PRESSED,
    )
    assert wanted > 5
    reached = page.evaluate_handle("new Set()")
    for _ in range(wanted + 3):
        page.keyboard.press("Tab")
        page.evaluate("(seen) => seen.add(document.activeElement)", reached)
    assert page.evaluate("(seen) => (seen.delete(document.body), seen.size)", reached) == wanted


def assert_nothing_is_cut_off(page) -> None:
    """Hold the page to the width of its screen."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.screen.width")


def assert_colours_follow(light, dark) -> None:
    """Take a page as the system's light and dark colours have it, and change both by the button."""
    bright, dim = ground(light), ground(dark)
    assert bright != dim
    light.get_by_role("button", name="Change to dark colours").click()
    dark.get_by_role("button", name="Change to light colours").click()
    assert (ground(light), ground(dark)) == (dim, bright)
    light.get_by_role("button", name="Change to light colours").click()
    assert ground(light) == bright
