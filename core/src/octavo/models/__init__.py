"""Model families (config -> graph) and checkpoint readers."""
