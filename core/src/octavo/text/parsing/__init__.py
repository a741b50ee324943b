"""Reading what a model wrote: content, reasoning and tool calls, as it comes."""
