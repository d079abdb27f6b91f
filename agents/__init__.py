"""Agent definitions, one Markdown file each, the price table, and the loader that checks them."""
