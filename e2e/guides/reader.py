"""Names that a reader puts in place of those on the pages: a model and its namespace in the cluster of these tests."""

import re

NAMESPACE = "pages"
MODEL = "digits"
NAMES = {"NAMESPACE": NAMESPACE, "team": NAMESPACE, "NAME": MODEL, "MODEL": MODEL, "resnet50": MODEL}
"""Name in the cluster, by word of a page."""


def named(text: str) -> str:
    """Return a command or an output with the names of the cluster in place of the page's words."""
    for word, name in NAMES.items():
        text = re.sub(rf"\b{re.escape(word)}\b", name, text)
    return text
