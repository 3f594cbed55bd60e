"""Check of the files of a model in a ConfigMap, before the first pod starts. Pure."""

# | files of the model                                  | checked by                                    |
# | --------------------------------------------------- | --------------------------------------------- |
# | in a ConfigMap, each config.pbtxt is up to 64 KiB   | this module                                   |
# | in a ConfigMap, a larger config.pbtxt               | the fetcher, in the revision's first pod      |
# | from any other source                               | the fetcher, in the revision's first pod      |

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.control.objects import config_map_model
from halcyon.control.state.scope import Scope
from halcyon.model_config import spec_check
from halcyon.render import model_overlay


def objection(scope: Scope, spec: Spec) -> str:
    """Return an error message if a model's config.pbtxt is invalid or contradicts the spec; otherwise an empty string.

    If the ConfigMap is a repository of several models, the message is about the first error in any of them.
    """
    name, source = scope.key.name, spec.model.source.config_map
    models = config_map_model.models(name, spec, scope.source.content)
    if not models.has_model or source is None:
        return ""
    head, overlay = f"ConfigMap {scope.key.namespace}/{source.name}", model_overlay.build(name, spec)
    if models.served is not None and (problem := spec_check.problem(models.served.content, overlay)):
        return f"{head}, key {models.served.key}: {problem}"
    problem = spec_check.problem_of_repository(overlay, models.configs(overlay.model_name), models.versions)
    return f"{head}: {problem}" if problem else ""
