"""The commands of `errand`, one file for each subject; run.py and result.py first. A command parses its options, makes
requests with cli/api.py and prints with cli/render/; main.py has the list, and imports each when it is called."""
