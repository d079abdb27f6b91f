"""The responses of reads, built from rows."""
