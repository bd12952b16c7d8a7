"""The product against raw LanceDB on the same rows: `python -m bench` (what `make bench` runs). Start at `__main__`."""
