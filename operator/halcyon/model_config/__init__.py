"""A model's config.pbtxt: parsing, and merging with the settings of the spec. Pure.

The fetcher merges with it in each server pod. The operator and `halcyon lint` find with it, before a pod starts, what
the fetcher would reject. It needs the packages protobuf and tritonclient, which the command line has with its extra
`bench` only.
"""
