"""Parts that several tools share: guarded HTTP, workspace paths, bounded output, child processes."""
