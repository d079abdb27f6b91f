"""The same scripted loop on other engines and frameworks, as ratios to the bare loop: `python -m bench.peers`."""
