"""The bridge that runs transports written in Python; it is not a transport itself.

`base` is the interface for their authors: PythonTransport and Link. `bridged_link` is a link with
its queued frames; `proof` is the proof of the link's one-time token; `watches` are the descriptors
to wait for. `pump` is the thread that runs a transport, and its half of the bridge. The C files are
the other half: an interface of pscompy/transport/transport.h.
"""
