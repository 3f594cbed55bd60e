"""The operator in a process that counts its memory by part when it receives SIGUSR1, for `benchmarks.hold.memory`.

    python -m benchmarks.hold.census FILE operator ...

The file gets the bytes of all Python objects that each part reaches. An object that several parts reach counts for the
first one. What no part reaches counts by the package of its type. Memory of C libraries, such as OpenSSL, isn't seen.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from halcyon import main as halcyon
from halcyon.control.runtime import build as composition
from halcyon.control.runtime.operator import Operator

_REST = "all else"
"""Name of the root for what no other part reaches first."""
_BY_TYPE = {_REST, "streams"}
"""Parts whose objects count by type."""
_SKIPPED = (types.ModuleType, type, types.FunctionType, types.CodeType, types.FrameType, types.BuiltinFunctionType)


def reached(roots: Mapping[str, Any], apart: Sequence[Any]) -> tuple[Counter[str], Counter[str]]:
    """Return the bytes and the number of objects by root, for all objects that a root reaches before the next one does.

    The objects in `apart` are roots of the last part only, whichever refer to them.
    """
    seen = {id(roots)} | {id(root) for root in (*roots.values(), *apart)}
    sizes: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for name, root in roots.items():
        stack = [root, *(apart if name == _REST else ())]
        while stack:
            obj = stack.pop()
            part = f"{name}: {type(obj).__module__}.{type(obj).__qualname__}" if name in _BY_TYPE else name
            sizes[part] += sys.getsizeof(obj)
            numbers[part] += 1
            for referent in gc.get_referents(obj):
                if id(referent) not in seen and not isinstance(referent, _SKIPPED):
                    seen.add(id(referent))
                    stack.append(referent)
    unreached = [obj for obj in gc.get_objects() if id(obj) not in seen and not isinstance(obj, _SKIPPED)]
    seen |= {id(unreached), id(seen), id(sizes), id(numbers)}
    for obj in unreached:
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        name = f"(no part) {type(obj).__module__.partition('.')[0]}.{type(obj).__qualname__}"
        for part in (obj, *gc.get_referents(obj)):
            if part is obj or (not gc.is_tracked(part) and id(part) not in seen):
                seen.add(id(part))
                sizes[name] += sys.getsizeof(part)
                numbers[name] += 1
    return sizes, numbers


def parts(operator: Operator) -> Iterator[tuple[str, Any]]:
    """Yield the operator's parts that keep state of models, each with its name. What they share counts for the first."""
    caches = operator.base.caches
    for informer in caches.informers:
        kind = informer.kind.plural + (" that models may use" if informer.metadata_only else "")
        yield f"informer {kind}: objects", _state(informer, "objects")
        yield f"informer {kind}: index", _state(informer, "index")
    yield "own writes", _state(caches.own_writes, "waiting")
    autoscaler = operator.autoscaler
    yield "accepted specs", _state(operator.base.specs, "in_force")
    yield "serving specs", _state(operator.base.serving_specs, "specs")
    store = autoscaler.signals.hub
    yield "observation store", getattr(store, "_models", store)
    decider = autoscaler.decider
    for name, value in vars(decider).items():
        if name != "signals":
            yield f"decider {name}", getattr(value, "_cached", value)
    yield "model state", autoscaler.models
    yield "status updates", _state(autoscaler.updates, "batches")
    yield "limits", (_state(autoscaler.limits, "limits"), _state(autoscaler.limits, "granted"))
    yield "memories", _state(operator.memories, "offered")
    yield "signals", _state(autoscaler.signals, "models")
    yield "metrics", vars(operator.model_metrics)
    yield "costs", vars(operator.costs)
    yield "advice", vars(operator.advice)
    yield "workers", vars(operator.workers)
    yield "registry", operator.base.registry
    if operator.dashboard is not None:
        yield "dashboard", vars(operator.dashboard)
    yield "streams", _state(operator.collector, "streams")
    yield "queue", operator.base.queue
    yield _REST, operator


def _state(part: Any, name: str) -> Any:
    """Return the private state of a part. No other module reads it, but the census has to count it."""
    return getattr(part, f"_{name}")


def main() -> int:
    """Run the operator, and write the census at each SIGUSR1."""
    file = Path(sys.argv[1])
    operators: list[Operator] = []
    build = composition.build

    def build_operator(*arguments: Any) -> Operator:
        operators.append(build(*arguments))
        return operators[-1]

    def count(*_: Any) -> None:
        gc.unfreeze()
        gc.collect()
        autoscaler = operators[0].autoscaler
        components = [
            operators[0],
            *vars(operators[0]).values(),
            *vars(operators[0].base).values(),
            *vars(autoscaler).values(),
            *operators[0].base.caches.informers,
        ]
        components += [asyncio.get_running_loop(), *asyncio.all_tasks()]
        sizes, numbers = reached(dict(parts(operators[0])), components)
        file.write_text(json.dumps({"bytes": sizes, "objects": numbers}))

    vars(composition)["build"] = build_operator
    signal.signal(signal.SIGUSR1, count)
    return halcyon.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
