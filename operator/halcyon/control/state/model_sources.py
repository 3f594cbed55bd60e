"""Current state of the sources of models, from the caches.

The content of a ConfigMap is fetched once per resourceVersion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from halcyon.control.objects import volume_attachment
from halcyon.control.state.cluster_state import ClusterState, source_index
from halcyon.control.state.pod_field_support import IMAGE_VOLUMES, RESOURCE_CLAIMS, PodFieldSupport
from halcyon.control.state.scope import SourceState
from halcyon.kube import kinds
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.render import revision

_SOURCE = "spec.model.source"


class ModelSources:
    """Lookup of the sources to which specs refer.

    The informers hold only the metadata of ConfigMaps, because a ConfigMap's content can take up to 1 MiB. The content
    is fetched only for ConfigMaps that models use.
    """

    def __init__(self, client: Kube, caches: ClusterState, clock: Clock) -> None:
        """Subscribe to changes of ModelDeployments, to drop the content of ConfigMaps that none of them uses any more."""
        self._client, self._caches = client, caches
        self._image_volumes = PodFieldSupport(client, IMAGE_VOLUMES, clock)
        self._claims = PodFieldSupport(client, RESOURCE_CLAIMS, clock)
        self._contents: dict[Key, tuple[str, Mapping[str, str], Mapping[str, str]]] = {}
        """The resourceVersion, `data` and `binaryData` of each fetched ConfigMap."""
        caches.resources.listeners.append(self._resource_changed)

    async def state(self, namespace: str, resource: Object) -> SourceState:
        """Return the state of a ModelDeployment's source, and whether the cluster lacks a feature that the pods need.

        Raises:
            ApiError, Unreachable: the content of a ConfigMap could not be fetched.
        """
        spec = resource.get("spec") or {}
        state = await self._source(namespace, (spec.get("model") or {}).get("source") or {})
        if state.lacking or not ((spec.get("runtime") or {}).get("gpu") or {}).get("resourceClaimTemplateName"):
            return state
        return replace(state, lacking=await self._claims.lacking(namespace))

    async def _source(self, namespace: str, source: Mapping[str, Any]) -> SourceState:
        if isinstance(claim := source.get("persistentVolumeClaim"), dict):
            name = str(claim.get("claimName"))
            volume_claim = self._caches.claims.get(Key(namespace, name))
            if volume_claim is None:
                return SourceState(
                    missing=f"{_SOURCE}.persistentVolumeClaim.claimName: PersistentVolumeClaim {namespace}/{name} doesn't exist"
                )
            modes = volume_attachment.exclusive_modes(volume_claim)
            return SourceState(exclusive={name: modes} if modes else {})
        if isinstance(config_map := source.get("configMap"), dict):
            return await self._config_map(Key(namespace, str(config_map.get("name"))), config_map.get("items") or ())
        if isinstance(source.get("image"), dict):
            return SourceState(lacking=await self._image_volumes.lacking(namespace))
        return SourceState()

    async def _config_map(self, key: Key, items: Iterable[Mapping[str, Any]]) -> SourceState:
        absent = SourceState(missing=f"{_SOURCE}.configMap.name: ConfigMap {key} doesn't exist")
        cached = self._caches.config_maps.get(key)
        if cached is None:
            self._contents.pop(key, None)
            return absent
        version = cached["metadata"]["resourceVersion"]
        content = self._contents.get(key)
        if content is None or content[0] != version:
            obj = await self._client.get(kinds.CONFIG_MAP, key.namespace, key.name)
            if obj is None:
                return absent
            content = (obj["metadata"]["resourceVersion"], obj.get("data") or {}, obj.get("binaryData") or {})
            # Its last user may have been deleted during the fetch.
            if self._is_named(key.namespace, f"configmap/{key.name}"):
                self._contents[key] = content
        keys = {str(item.get("key")) for item in items}
        _, data, binary = content
        if missing_keys := sorted(keys - set(data) - set(binary)):
            existing = ", ".join(sorted({*data, *binary})) or "none"
            message = f"ConfigMap {key} has no key {', '.join(missing_keys)}; its keys are {existing}"
            return SourceState(missing=f"{_SOURCE}.configMap.items: {message}")
        return SourceState(
            content=revision.Content(
                data={k: v for k, v in sorted(data.items()) if k in keys},
                binary={k: v for k, v in sorted(binary.items()) if k in keys},
            )
        )

    def _is_named(self, namespace: str, index_value: str) -> bool:
        return bool(self._caches.resources.find(namespace, index_value))

    def _resource_changed(self, key: Key, before: Object | None, _after: Object | None) -> None:
        for index_value in () if before is None else source_index(before):
            kind, _, name = index_value.partition("/")
            if kind == "configmap" and not self._is_named(key.namespace, index_value):
                self._contents.pop(Key(key.namespace, name), None)
