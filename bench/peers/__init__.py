"""The same scripted loop on other engines and frameworks, as ratios to the bare loop: `python -m bench.peers`.

Read script.py (the loop), peer.py (the list, and the process of each), stage.py (what runs in it), contest.py and
report.py; a file named after an engine holds its loop, and imports nothing of ours but script.py and asking.py."""
