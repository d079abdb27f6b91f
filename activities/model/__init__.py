"""The model step. Read call_model.py (the story), reply.py (the messages that it reads and adds), models.py (the port)
and the vendors, anthropic.py and openai.py; recorded.py is the feature of reruns. Imported by the wiring, by
delegation/ and handlers/, whose steps are model steps with another `ask`, and by others for one thing: sessions/ for
the contexts and the judge, tools/ for recorded results and a search by the model's vendor.
"""
