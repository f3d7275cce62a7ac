/* A transport that wraps another one and makes trouble within the contract.
 * The text between the CDEF marks is read by build.py. */
#ifndef PSCOMPY_TESTING_FAULTS_H
#define PSCOMPY_TESTING_FAULTS_H

#include <stdint.h>

/* CDEF BEGIN */
typedef struct faults faults_t;

typedef struct faults_knobs {
    uint32_t busy;    /* NO_RESOURCE so many times before each operation */
    uint32_t delay;   /* of so many passes plus one, one makes progress */
    uint64_t fail_at; /* the operation that breaks its endpoint; 0: none */
    uint64_t kill_at; /* the operation that kills the process; 0: none */
    uint32_t refuse;  /* registrations that find no room */
} faults_knobs_t;

/* Wraps the table at `ops`, for one worker. NULL: out of memory. */
faults_t *faults_create(uintptr_t ops, const faults_knobs_t *knobs);
/* The worker is gone. */
void faults_destroy(faults_t *faults);
uintptr_t faults_ops(faults_t *faults);
/* CDEF END */

#endif
