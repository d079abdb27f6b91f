"""The face of OpenAI's Responses API, at /v1/responses and /v1/models."""
