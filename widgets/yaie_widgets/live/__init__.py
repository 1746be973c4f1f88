"""Live views: widgets that follow an engine while it works. Each class is loaded when it is first used."""
