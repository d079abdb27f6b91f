"""Events: what a watcher sees."""
