"""A cluster reached from elsewhere: connection, what is sent, what is fetched, and what answers there."""
