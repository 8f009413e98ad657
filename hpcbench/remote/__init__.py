"""A cluster reached from elsewhere: the connection, files in both directions, and the server there."""
