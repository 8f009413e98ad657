"""OAuth2 for endpoints elsewhere: options, messages, the token of a credential, and its file."""
