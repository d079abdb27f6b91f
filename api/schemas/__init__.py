"""Request and response models, one file per noun."""
