"""The file layer: system calls that tests can replace, and the limit of open files."""
