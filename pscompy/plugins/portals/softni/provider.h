/* A provider: the functions of one Portals 4 library, in a table. The driver
 * calls through a table and can so choose at run time. A file that calls a
 * system's library is compiled with PSPTL_SYSTEM defined: types and constants
 * are then those of its <portals4.h>, which need not be laid out like ours, so
 * one compiled copy of the driver belongs to one provider. */
#ifndef PSPTL_PROVIDER_H
#define PSPTL_PROVIDER_H

#include <stdbool.h>

#ifdef PSPTL_SYSTEM
#include <portals4.h>
#else
#include "portals4.h"
#endif

enum { PSPTL_COOKIE_BYTES = 16 };

/* Every member of the first part has the name and the type of the function of
 * the specification. The members of the second part are extensions; a library
 * without them has NULL there. */
typedef struct psptl_provider {
    const char *name;

    __typeof__(PtlInit) *PtlInit;
    __typeof__(PtlFini) *PtlFini;
    __typeof__(PtlNIInit) *PtlNIInit;
    __typeof__(PtlNIFini) *PtlNIFini;
    __typeof__(PtlNIStatus) *PtlNIStatus;
    __typeof__(PtlNIHandle) *PtlNIHandle;
    __typeof__(PtlHandleIsEqual) *PtlHandleIsEqual;
    __typeof__(PtlGetUid) *PtlGetUid;
    __typeof__(PtlGetId) *PtlGetId;
    __typeof__(PtlGetPhysId) *PtlGetPhysId;
    __typeof__(PtlPTAlloc) *PtlPTAlloc;
    __typeof__(PtlPTFree) *PtlPTFree;
    __typeof__(PtlPTDisable) *PtlPTDisable;
    __typeof__(PtlPTEnable) *PtlPTEnable;
    __typeof__(PtlEQAlloc) *PtlEQAlloc;
    __typeof__(PtlEQFree) *PtlEQFree;
    __typeof__(PtlEQGet) *PtlEQGet;
    __typeof__(PtlEQWait) *PtlEQWait;
    __typeof__(PtlEQPoll) *PtlEQPoll;
    __typeof__(PtlCTAlloc) *PtlCTAlloc;
    __typeof__(PtlCTFree) *PtlCTFree;
    __typeof__(PtlCTGet) *PtlCTGet;
    __typeof__(PtlCTWait) *PtlCTWait;
    __typeof__(PtlCTPoll) *PtlCTPoll;
    __typeof__(PtlCTSet) *PtlCTSet;
    __typeof__(PtlCTInc) *PtlCTInc;
    __typeof__(PtlMDBind) *PtlMDBind;
    __typeof__(PtlMDRelease) *PtlMDRelease;
    __typeof__(PtlLEAppend) *PtlLEAppend;
    __typeof__(PtlLEUnlink) *PtlLEUnlink;
    __typeof__(PtlLESearch) *PtlLESearch;
    __typeof__(PtlMEAppend) *PtlMEAppend;
    __typeof__(PtlMEUnlink) *PtlMEUnlink;
    __typeof__(PtlMESearch) *PtlMESearch;
    __typeof__(PtlPut) *PtlPut;
    __typeof__(PtlGet) *PtlGet;

    bool tells_true; /* of a put: the list that took it, to its initiator, and
                        its length, whichever list it was */

    /* A descriptor that polls readable when the queue may have news; it stays
     * the queue's, and is closed with it. To sleep: arm, and only if that
     * answered PTL_EQ_EMPTY wait for the descriptor; then PtlEQGet until it
     * is empty. PTL_OK of eq_arm: there is something, do not sleep. */
    int (*eq_fd)(ptl_handle_eq_t eq_handle, int *fd);
    int (*eq_arm)(ptl_handle_eq_t eq_handle);

    /* Who may talk to an NI: who knows its cookie. Give yours away with your
     * address, and admit a peer (with its cookie) before the first operation
     * to it. Not needed where both NIs were given a common key. */
    int (*ni_cookie)(ptl_handle_ni_t ni_handle,
                     uint8_t cookie[PSPTL_COOKIE_BYTES]);
    int (*ni_admit)(ptl_handle_ni_t ni_handle, ptl_process_t peer,
                    const uint8_t cookie[PSPTL_COOKIE_BYTES]);
} psptl_provider_t;

#endif
