"""Code that the parts of a spec share: fields described by the docstring under them, and the most common rule."""

from __future__ import annotations

from pydantic import ConfigDict

from halcyon.api.types import ApiModel, Rule


class Documented(ApiModel):
    """A part of a spec whose fields are described by the docstrings under them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def exactly_one(*names: str, where: str, good: str) -> Rule:
    """Return the rule that exactly one of these fields, named in camelCase, is set.

    `where` and `good` are used in its message.
    """
    attributes = {name: "".join("_" + c.lower() if c.isupper() else c for c in name) for name in names}
    return Rule(
        cel=f"[{', '.join(f'has(self.{n})' for n in names)}].filter(x, x).size() == 1",
        check=lambda m: sum(getattr(m, a) is not None for a in attributes.values()) == 1,
        message=f"{where} needs exactly one of {', '.join(names)}; for example "
        + good.replace("{", "{{").replace("}", "}}"),
    )
