"""The config.pbtxt of a model that is stored in a ConfigMap. Pure."""

from __future__ import annotations

import base64
import binascii

from halcyon.api.spec import Spec
from halcyon.render.revision import Content

CONFIG = "config.pbtxt"


def config_file(spec: Spec, content: Content | None) -> tuple[str, bytes] | None:
    """Return the key and the bytes of the config.pbtxt in a model's ConfigMap.

    The result is None if the ConfigMap has no config.pbtxt, or if the model isn't stored in a ConfigMap.
    """
    source = spec.model.source.config_map
    if content is None or source is None:
        return None
    for key in (item.key for item in source.items if item.path == CONFIG):
        if key in content.data:
            return key, content.data[key].encode()
        if key in content.binary:
            try:
                return key, base64.b64decode(content.binary[key])
            except binascii.Error:
                continue
    return None
