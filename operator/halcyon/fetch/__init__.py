"""The init container that brings a model into a Triton pod and merges its configuration.

It runs on every cold start, so it loads only the standard library and protobuf's runtime, and obstore for a model that is downloaded.
The steps: `download` fetches a model that isn't mounted (through `egress_proxy`, from `allowed_addresses`, unpacked by `archive`). `mounted_source` reads the
folder, `config_pbtxt` the model's own config.pbtxt. `merge` applies the overlay to that, and `repository` assembles Triton's model
repository. `main` is the process.
"""
