"""YAML without anchors, as Kubernetes tools write it."""

from __future__ import annotations

from typing import Any

import yaml
from typing_extensions import override


class PlainDumper(yaml.SafeDumper):
    """YAML dumper that repeats a value instead of referring to it by an anchor."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True
