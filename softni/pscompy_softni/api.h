/* The functions of the software NI: those of the Portals 4 specification, and
 * extensions of its own, which a program finds by dlsym. Nothing else of this
 * folder is visible outside the library (libsoftni.so).
 *
 * The types come from the <portals4.h> that the compiler finds, else from the
 * header beside this one. Libraries of Portals 4 differ in handles, constants
 * and layouts; so one build has one header, for its driver and for this NI,
 * and one compiled driver serves both. */
#pragma once

#include <stdint.h>

#pragma GCC visibility push(default)

#if __has_include(<portals4.h>)
#include <portals4.h>
#define SOFTNI_SYSTEM_HEADER 1
#else
#include "portals4.h"
#define SOFTNI_SYSTEM_HEADER 0
#endif

enum { SOFTNI_COOKIE_BYTES = 16 };

/* softni_eq_fd stores a file descriptor that polls readable when the queue may
 * have events. The queue owns and closes the descriptor. To sleep: call
 * softni_eq_arm, wait for the descriptor only if that returned PTL_EQ_EMPTY,
 * then call PtlEQGet until the queue is empty. softni_eq_arm returns PTL_OK if
 * the queue has events already. */
int softni_eq_fd(ptl_handle_eq_t eq_handle, int *fd);
int softni_eq_arm(ptl_handle_eq_t eq_handle);

/* An NI talks only to peers that know its cookie, a secret. A program sends the
 * cookie of its NI (softni_cookie) together with the address, and admits a peer
 * with the cookie of the peer (softni_admit) before the first operation to
 * it. */
int softni_cookie(ptl_handle_ni_t ni_handle,
                  uint8_t cookie[SOFTNI_COOKIE_BYTES]);
int softni_admit(ptl_handle_ni_t ni_handle, ptl_process_t peer,
                 const uint8_t cookie[SOFTNI_COOKIE_BYTES]);

/* Sets the nanoseconds after which a peer that does not answer counts as lost;
 * 0: about two minutes. */
int softni_patience(ptl_handle_ni_t ni_handle, ptl_process_t peer,
                    uint64_t patience_ns);

/* For tests: sets one fault, or one limit, of all NIs that this process opens
 * from now on; fault_injection.c lists the names. Returns PTL_ARG_INVALID if
 * there is no such name, or if a rate is above a million. */
int softni_fault_set(const char *name, uint64_t value);

#pragma GCC visibility pop
