"""One file per subject: its routes, the models that only they have, and the helpers that only they use.

`tasks` first. A route checks and answers; what several of them do is in `submission`, `conversations`, `streams` or
`views`. `api.app` includes them, and `faces` calls some; nothing else imports them.
"""
