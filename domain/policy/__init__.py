"""Policy: permission rules, what they apply to, and which addresses may be reached."""
