"""Agent definitions: what people edit, the system prompt, prices and typed output."""
