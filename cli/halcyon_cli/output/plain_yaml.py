"""YAML in the style of Kubernetes tools: without anchors, and with quotes around texts that look like other types."""

from __future__ import annotations

from typing import Any

import yaml
from typing_extensions import override

from halcyon_cli.manifest_loader import ManifestLoader


class PlainDumper(yaml.SafeDumper):
    """YAML dumper that repeats a value instead of referring to it by an anchor.

    A text such as `y` or `1e3` is quoted, because kubectl would read it as a boolean or a number.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012  # as in PyYAML
        first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *resolvers]
        for first, resolvers in {
            **dict.fromkeys(yaml.SafeDumper.yaml_implicit_resolvers, ()),
            **ManifestLoader.yaml_implicit_resolvers,
        }.items()
    }

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True
