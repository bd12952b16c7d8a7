"""The command line: data on stdout, progress and warnings on stderr, exit codes that scripts can use.

0 done, 1 error, 2 usage, 4 not authorised, 5 retrieval unavailable, 130 interrupted.
"""
