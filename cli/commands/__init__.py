"""The commands of `errand`, one file each."""
