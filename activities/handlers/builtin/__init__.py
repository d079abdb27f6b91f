"""The handlers that come with the platform, one file each."""
