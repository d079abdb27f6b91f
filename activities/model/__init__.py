"""The model call: request, response, the Anthropic client and recorded answers."""
