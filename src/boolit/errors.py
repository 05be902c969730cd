"""The error for input that the user can fix."""


class UserError(ValueError):
    """Input that cannot be used. The message names the value and the rule on one line.

    The command line prints it and exits with code 2. Every other exception keeps its traceback.
    """
