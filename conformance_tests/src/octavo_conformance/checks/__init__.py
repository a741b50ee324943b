"""The checks, a module for each family. See `octavo_conformance.check` for how to write one."""
