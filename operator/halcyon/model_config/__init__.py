"""Parsing of a model's config.pbtxt, and merging with the settings of the ModelDeployment. Pure.

The fetcher uses the package to write the file that Triton reads, in each server pod. The operator and `halcyon lint`
use it to find errors before a pod starts. It needs the packages protobuf and tritonclient. The command line installs
them only with its extra `bench`.
"""
