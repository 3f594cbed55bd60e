"""The init container that brings a model into a Triton pod and merges its configuration.

It runs on every cold start, so it loads the standard library and protobuf's runtime, and for a model that is downloaded obstore, nothing
else. The steps: `download` brings what isn't mounted (through `door`, by `unpack`), `source` looks at what is there, `config` reads the
model's own config.pbtxt, `merge` writes the overlay over it, `repository` assembles what Triton reads, `main` is the process.
"""
