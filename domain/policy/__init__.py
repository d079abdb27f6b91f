"""Policy: rules.py decides on calls; command_files.py finds the files that an approved command may run; addresses.py
says which internet addresses may be reached. Everything may import this package; it imports only domain/."""
