"""Init container of a server pod: it makes the model available to Triton and merges its configuration.

It runs on every cold start, so it imports only the standard library, protobuf's runtime, and obstore if a model must be
downloaded. The steps are:

- `download` fetches a model that isn't mounted, through `egress_proxy`; `archive` unpacks it.
- `mounted_source` reads the model's folder, and `config_pbtxt` parses its config.pbtxt.
- `merge` applies the overlay, which contains the settings of the ModelDeployment, to this configuration.
- `repository` creates Triton's model repository.

`main` is the entry point of the process.
"""
