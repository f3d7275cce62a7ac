/* A transport that wraps another one and injects faults that the contract
 * allows. build.py reads the text between the CDEF marks. */
#pragma once

#include <stdint.h>

/* CDEF BEGIN */
typedef struct faults faults_t;

typedef struct faults_knobs {
    uint32_t busy; /* number of NO_RESOURCE results before each operation */
    uint32_t delay; /* calls of the progress function that do nothing, between
                       two that make progress */
    /* maximum number of idle calls of the progress function beyond `delay`; the
     * actual number is random, and differs between paths */
    uint32_t shuffle;
    uint64_t fail_at; /* number of the operation that breaks its endpoint,
                         or 0 */
    uint32_t path; /* the path, counted from 1, on which `fail_at` takes effect;
                      0 stands for any path */
    uint64_t kill_at; /* number of the operation that kills the process,
                         or 0 */
    uint32_t refuse; /* number of memory registrations that are refused */
} faults_knobs_t;

/* Creates a wrapper of the transport whose table of operations
 * (psc_transport_ops_t) is at `ops`, for one worker. Returns NULL if memory is
 * short. */
faults_t *faults_create(uintptr_t ops, const faults_knobs_t *knobs);
/* Frees the wrapper. To be called after the worker was destroyed. */
void faults_destroy(faults_t *faults);
uintptr_t faults_ops(faults_t *faults);
/* CDEF END */
