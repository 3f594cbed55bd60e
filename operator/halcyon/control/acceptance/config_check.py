"""Check of a config.pbtxt that is in a model's ConfigMap, before the first pod starts. Pure."""

# | source of the model | check of config.pbtxt |
# | --- | --- |
# | ConfigMap | by this module, up to 64 KiB |
# | any other | by the fetcher, in the first pod of the revision |

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.control.objects.config_map_model import config_file
from halcyon.control.state.scope import Scope
from halcyon.model_config import spec_check
from halcyon.render import model_overlay


def objection(view: Scope, spec: Spec) -> str:
    """Return a sentence about the error if a model's config.pbtxt is invalid or contradicts the spec; empty if not."""
    found, source = config_file(spec, view.source.content), spec.model.source.config_map
    if found is None or source is None:
        return ""
    key, content = found
    problem = spec_check.problem(content, model_overlay.build(view.key.name, spec))
    return f"ConfigMap {view.key.namespace}/{source.name}, key {key}: {problem}" if problem else ""
