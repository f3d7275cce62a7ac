"""What carries the transports that are written in Python; no transport itself.

`base` is what their authors see: PythonTransport and Link. `channel` is a link as pscompy keeps
it, frames cut, joined and queued; `proof` is how both of its ends prove their one-time token;
`watches` are the descriptors to wait for. `pump` is the thread that runs a transport, and its
half of the bridge. The C files are the other half: an interface of pscompy/transport/transport.h.
"""
