"""The site's policy: its typed values, each rule in CEL and in Python, and the admission policies made of them."""
