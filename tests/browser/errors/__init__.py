"""Every row of the manual's table of errors, made for real and put right from the pages alone."""
