"""Optional sections of the document, each a model in a module of its own. Pure."""
