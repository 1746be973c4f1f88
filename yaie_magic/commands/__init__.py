"""The subcommands of `yaie`, one module each, loaded when named."""
