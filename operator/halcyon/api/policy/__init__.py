"""The site policy: its typed values, each rule in CEL and in Python, and the admission policies built from them."""
