/* The three-way status that every call of the library returns: done (0), in
 * progress (1), or an error (negative). One list defines the constants and the
 * texts; pscompy/errors.py maps each error to its exception. */
#ifndef PSCOMPY_TRANSPORT_STATUS_H
#define PSCOMPY_TRANSPORT_STATUS_H

/* name and value of each status, and text for log lines */
#define PSC_STATUS_LIST(X)                                                     \
    X(OK, 0, "success")                                                        \
    X(INPROGRESS, 1, "in progress")                                            \
    X(ERR_NO_RESOURCE, -1, "no resource now, try again later")                 \
    X(ERR_INVALID, -2, "invalid argument")                                     \
    X(ERR_UNSUPPORTED, -3, "not supported")                                    \
    X(ERR_NO_MEMORY, -4, "out of memory")                                      \
    X(ERR_TRANSPORT, -5, "the fabric reported an error")                       \
    X(ERR_CONNECT, -6, "the connection could not be made")                     \
    X(ERR_PEER_LOST, -7, "the peer is gone")                                   \
    X(ERR_CLOSED, -8, "closed")                                                \
    X(ERR_TRUNCATED, -9, "the message is longer than the buffer")              \
    X(ERR_TIMEOUT, -10, "timed out")                                           \
    X(ERR_CANCELLED, -11, "cancelled")                                         \
    X(ERR_PROTOCOL, -12, "the peer broke the protocol")                        \
    X(ERR_INTERRUPTED, -13, "interrupted by a signal")                         \
    X(ERR_FORKED, -14, "inherited through fork")                               \
    X(ERR_KEY, -15, "no remote key of this job, or one that was altered")      \
    X(ERR_BOUNDS, -16, "outside of the remote memory")                         \
    X(ERR_REGION, -17, "the region was closed by its owner")

typedef enum psc_status {
#define PSC_STATUS_ENUM(name, value, text) PSC_##name = value,
    PSC_STATUS_LIST(PSC_STATUS_ENUM)
#undef PSC_STATUS_ENUM
} psc_status_t;

static inline const char *psc_status_string(int status)
{
    switch (status) {
#define PSC_STATUS_CASE(name, value, text)                                     \
    case value:                                                                \
        return text;
        PSC_STATUS_LIST(PSC_STATUS_CASE)
#undef PSC_STATUS_CASE
    default:
        return "unknown status";
    }
}

#endif
