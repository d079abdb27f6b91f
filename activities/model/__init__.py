"""The model step. Read call_model.py (the story), reply.py (the messages that it reads and adds), anthropic.py (the
vendor); recorded.py is the feature of reruns. Imported by the wiring, by delegation/ and handlers/, whose steps are
model steps with another `ask`, and by sessions/ for the contexts.
"""
