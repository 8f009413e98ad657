"""SSH, with the `ssh` program of this machine.

The user's setup of `ssh` counts, because `ssh` itself reads it: `~/.ssh/config`, jump hosts, agents,
certificates, Kerberos, FIDO keys, known hosts. This package adds options of every connection and errors with
a cause and a remedy (`login`), one login for many commands (`connection`), and the commands (`command`).
`ssh` itself asks for passphrases and second factors, on a terminal only.
"""
