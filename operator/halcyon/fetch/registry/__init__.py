"""Model registries that serve files over their own HTTP interface: the Hugging Face Hub and MLflow."""
