"""Derives a session again from its log and holds what is recorded against that: `muse replay --verify`.

`walk` goes through the log once. `decisions` asks `due` what might have been decided, `facts` whether what came back
fits what was begun, `contents` whether blobs, digests and decoded responses are what they say. `offline` keeps sockets
and processes out of it. It must not know how a log is stored nor how a divergence is shown.
"""
