"""A task, from its body until Temporal has it.

Read `submit`, which is the whole story; `rules` has what can be refused, `start` the call to Temporal and the bound on
waiting tasks. `task_files` and `task_servers` are entered only by tasks that bring some. Turns, arrivals, reruns and
faces use the parts of `submit`.
"""
