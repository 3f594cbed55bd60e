"""The init container that brings a model into a Triton pod and merges its configuration.

It runs on every cold start, so it loads the standard library and protobuf's runtime, nothing else. The steps: `source`
looks at what is mounted, `config` reads the model's own config.pbtxt, `merge` writes the overlay over it, `repository`
assembles what Triton reads, `main` is the process. Nothing here talks to a network.
"""
