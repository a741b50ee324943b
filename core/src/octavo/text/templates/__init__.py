"""Chat templates: from messages to the prompt's text, in a sandbox and in a process that can be killed."""
