"""OpenAI's Responses API, at /v1/responses and /v1/models.

Read `routes`, `request` (the body), `create` (the request as a turn), `project` (the event log as a response: a pure
fold, which webhooks use too), `view` (a stored response), `objects`, `errors`; `input_files` is for requests with
pictures and PDFs.
"""
