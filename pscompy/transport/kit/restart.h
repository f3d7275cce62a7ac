/* Restarts a system call that a signal has interrupted.
 *
 * The program may have handlers that run at any moment: timers, profilers,
 * SIGCHLD. Linux then ends some calls with EINTR, also calls that do not sleep,
 * such as poll() with the time-out 0. EINTR says nothing about the descriptor
 * or the peer. Not for calls whose time-out must be computed anew, and neither
 * for close(), which has closed the descriptor, nor for connect(), which goes
 * on without the caller: wait until the socket is writable. */
#ifndef PSCOMPY_TRANSPORT_KIT_RESTART_H
#define PSCOMPY_TRANSPORT_KIT_RESTART_H

#include <errno.h>

/* The value of `call`, which is repeated while it fails with EINTR. */
#define PSC_RESTART(call)                                                      \
    ({                                                                         \
        __typeof__(call) psc_result_;                                          \
                                                                               \
        do                                                                     \
            psc_result_ = (call);                                              \
        while (psc_result_ == -1 && errno == EINTR);                           \
        psc_result_;                                                           \
    })

#endif
