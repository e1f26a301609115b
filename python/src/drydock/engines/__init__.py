"""What runs inside inference engines: taking a staged arena into live parameters.

Each engine has a subpackage that knows its extension point. What they share stands here and needs the standard library
alone: `arenafile` reads the header of an arena file, `session` keeps what a worker knows of the update under way.

Law: everything that can be checked is checked before a live parameter is touched, and no call from outside ever ends in
an exception inside a worker. What went wrong is part of the status, which the caller asks for after each step.
"""
