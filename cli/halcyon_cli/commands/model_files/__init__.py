"""Commands on the file of a model: no server and no cluster is needed."""
