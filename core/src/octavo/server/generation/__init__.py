"""What the generating APIs share: requests to turns, turns to answers."""
