"""The controller rank and the roles of a world."""
