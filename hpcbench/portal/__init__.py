"""The portal: one small web server of the user's own on the login node, behind an SSH tunnel.

Experiment directories are the truth; what the portal keeps (an index) can be thrown away. Routes answer with
the models of `models/`; the web client lies in the repository's `portal/`, its built form in `static/`.
"""
