"""Files that are damaged on purpose, for every reader: ``PYTHONPATH=tests/shared python -m damaged_files --count 10000``.

A case is a function of its seed: a reader, an honest file of its format, and damage (``damage``, ``trees``). It runs in a
process of its block under watch (``watch``), which demands: the value, or an error of the project; memory within three times
of what an honest file needs; no process started, no file written, nothing unpickled; an end. ``planted`` has readers as they
must not be, to show that the watch finds them.
"""
