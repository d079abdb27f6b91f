"""Policy: rules.py decides on calls; addresses.py says which internet addresses may be reached. Everything may import
this package; it imports only domain/."""
