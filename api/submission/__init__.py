"""A task, from its body until Temporal has it.

Read `submit`, which is the whole story, with the start of the workflow and the bound on waiting tasks at its end; then
`rules`, what can be refused. `task_files` is entered only by tasks that bring some. Turns, arrivals, reruns and faces
use the parts of `submit`; nothing outside the API imports it.
"""
