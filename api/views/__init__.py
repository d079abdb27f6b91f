"""What reads return, put together from rows."""
