"""Pure builders: one module per child object, from accepted values to plain dicts.

No I/O, no clock, no environment. Names are made in `names` and nowhere else. Whether an object is written is the
controller's business.
"""
