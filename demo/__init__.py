"""The demo: Halcyon's main job from end to end, with figures. `make demo`, or `python -m demo --help`.

Each part (serving, batching, scaling, footprint) is a module of functions that measure and return values; the scenarios in
`e2e/scenarios` assert on the same functions. What a cluster or an image is doesn't belong here.
"""
