"""Parsing of a model's config.pbtxt, and merging with the settings of the ModelDeployment. Pure.

The fetcher uses this package in each server pod to write the file that Triton reads. The operator and `halcyon lint`
use it to detect errors before a pod starts. It requires the packages protobuf and tritonclient, which the command line
installs only with its extra `bench`.
"""
