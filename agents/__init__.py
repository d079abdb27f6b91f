"""Agent definitions, one Markdown file each, the price table, and the loader that checks them: loader.py reads,
problems.py says what is wrong with a file or between files. The worker, the API and the command line import it.
"""
