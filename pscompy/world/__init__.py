"""Jobs and ranks: World, collective operations, bootstrap."""
