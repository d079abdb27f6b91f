"""Input requests: the question for a person, and the result of their answer."""
