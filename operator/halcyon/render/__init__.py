"""Pure builders: one module per child object, from accepted values to plain dicts.

No I/O, no clock, no environment. All names are defined in `names`. The controller decides whether an object is written.
"""
