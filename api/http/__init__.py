"""What happens to every request, whatever its route.

In the order of a request: `middleware` (the head, problems, the log), `auth` (who calls, with which rights), `body`
(read, parsed, validated), `lookup` (the session that it names), `idempotency` (a repetition), `paging`, `problems` (how
a refusal looks), `metrics`, `transfers` (whole files, few at once). It imports nothing else of the API but
`api.services`, and the form of errors of `faces/responses`; everything else of the API may import it.
"""
