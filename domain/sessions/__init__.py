"""Sessions. Read session.py first, then new_session.py (what one is created with), session_state.py (what its
workflow keeps), writes.py (what the store writes); then input requests and acceptance criteria.

Everything may import this package; it imports only domain/.
"""
