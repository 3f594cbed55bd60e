"""The config.pbtxt that Triton receives: the model's own file, merged with settings of the ModelDeployment. Pure."""

from __future__ import annotations

from halcyon.api.documents.model_overlay import Overlay
from halcyon.model_config import config_pbtxt, merge, model_config_proto
from halcyon.model_config.errors import UnknownFieldError


def of(own: bytes | None, overlay: Overlay, *, backend_of_file: str = "") -> tuple[bytes, str]:
    """Return the config.pbtxt for Triton, and a note about the changes to the model's own file.

    `own` is the content of the model's own config.pbtxt; None if the model has none. `overlay` contains the settings to
    merge. `backend_of_file` is the backend that Triton derives from the model's files if config.pbtxt names none; empty
    if unknown.

    Raises:
        ModelError: the file is invalid, contradicts the overlay, or would not work with it.
    """
    config = model_config_proto.empty()
    if own is not None:
        try:
            config = config_pbtxt.parse(own)
        except UnknownFieldError as error:
            if overlay.is_empty and config_pbtxt.declared_name(own) in {"", overlay.model_name}:
                return own, f"config.pbtxt used unchanged ({error})"
            raise UnknownFieldError(
                f"{error}. Halcyon can't change a file with unknown fields: correct or remove the line, or "
                f"leave spec.batching, versions, warmup, parameters, backend and instancesPerGPU out and name the model "
                f"{overlay.model_name} in the file; then it is used unchanged"
            ) from error
    merged = merge.merge(config, overlay, backend_of_file=backend_of_file)
    changed = merge.changes(config, merged)
    if own is None:
        return config_pbtxt.render(merged), f"config.pbtxt written ({', '.join(changed)}), Triton completes the rest"
    if not changed:
        return own, "config.pbtxt used unchanged"
    return config_pbtxt.render(merged), f"config.pbtxt merged ({', '.join(changed)})"
