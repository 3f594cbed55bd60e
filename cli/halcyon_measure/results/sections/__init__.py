"""Optional sections of the document, with one module per section. Pure."""
