"""The workflows and their helpers. Other packages use them only through `workflows.client`."""
