"""The CPU platform of Octavo: runs models on the machine's own processors."""
