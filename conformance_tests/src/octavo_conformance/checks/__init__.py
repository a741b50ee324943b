"""The checks, a module for each family. See `octavo_conformance.suite.check` for how to write one."""
