"""Events as they happen: `feeds` reads the log and wakes its readers, `readers` is what a caller gets: server-sent
events, or the session once it has ended. Routes, conversations and faces import it.
"""
