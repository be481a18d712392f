"""Turns figures of Matplotlib into SVG elements that fit into a page.

The page's style sheet sets fonts and colours, so that one figure is legible on light and on dark
ground: `INK`, `MUTED`, `RULE`, `GROUND` and `ARMS` become its variables. No `style` attribute is
left, because the page's content security policy forbids them.
"""

import contextlib
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

import matplotlib
from matplotlib.figure import Figure

from rcrl_jax.report import markup

INK, MUTED, RULE, GROUND = "#1f2328", "#6e7781", "#d8dee4", "#ffffff"
ARMS = (
    "#0b5394", "#c2410c", "#00796b", "#8e24aa", "#a87900", "#c2185b", "#455a64", "#5d7a00",
)  # fmt: skip
"""Colours to draw with; the style sheet has a light and a dark value of each."""

VARIABLES = {
    INK: "currentColor",
    "#000000": "currentColor",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    GROUND: "var(--ground)",
    **{color: f"var(--arm-{number})" for number, color in enumerate(ARMS)},
}
"""Colour to draw with -> what the page has in its place."""

_SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "page",  # else identifiers are random
    "text.parse_math": False,  # names may hold dollars
    "axes.formatter.use_mathtext": False,
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
# No pictures, links or style sheets: nothing that could make the page ask for something.
_KEPT = {"path", "use", "g", "text", "tspan", "defs", "clipPath", "rect"}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Settings under which figures of the page are made; `inline` belongs into the same block."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def inline(figure: Figure, description: str, prefix: str) -> markup.Markup:
    """The figure as an `<svg>` that scales with its box.

    Args:
        figure: made within `drawing`.
        description: what a reader who cannot see the figure is told.
        prefix: starts all identifiers of this figure; no other figure of the page has it.
    """
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    file = io.StringIO()
    empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=empty)
    root = ElementTree.fromstring(file.getvalue())
    _clean(root, prefix)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": description}
    ElementTree.register_namespace("", _SVG[1:-1])
    text = ElementTree.tostring(root, encoding="unicode")
    # An <svg> within HTML needs no namespaces.
    return markup.Markup(re.sub(r' xmlns(:\w+)?="[^"]*"', "", text, count=2))


def _clean(node: ElementTree.Element, prefix: str) -> None:
    for child in list(node):
        if child.tag.removeprefix(_SVG) not in _KEPT:
            node.remove(child)
            continue
        _clean(child, prefix)
    if node.tag not in (f"{_SVG}text", f"{_SVG}tspan"):
        node.text = None
    node.tail = None
    style = node.attrib.pop("style", "")
    for declaration in filter(None, map(str.strip, style.split(";"))):
        name, _, value = declaration.partition(": ")
        if name in ("font", "font-family"):
            continue
        node.set(name, VARIABLES.get(value, value))
    own = node.attrib.pop("id", None)
    # Groups have identifiers that nothing refers to, the same in every figure.
    if own and node.tag != f"{_SVG}g":
        node.set("id", f"{prefix}-{own}")
    if target := node.attrib.pop(_LINK, None):
        node.set("href", f"#{prefix}-{target[1:]}")
    if clip := node.get("clip-path"):
        node.set("clip-path", clip.replace("#", f"#{prefix}-"))
    if "d" in node.attrib:
        node.set("d", " ".join(_short(node.get("d")).split()))
    if "transform" in node.attrib:
        if node.get("transform").startswith("rotate(-0 "):
            del node.attrib["transform"]
        else:
            node.set("transform", _short(node.get("transform")))


def _short(numbers: str) -> str:
    """Numbers with two decimals, in points."""
    return re.sub(r"-?\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", numbers)
