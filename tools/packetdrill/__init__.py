"""Plays packetdrill's scripts against the lab (docs/lab.md, "packetdrill")."""
