"""Input requests: what a person is asked, and what their answer becomes."""
