/* Ctrl-C while a call-back is about to run: Python would raise it at the first
 * line of the call-back, which has nobody to tell, so that the message would be
 * lost. It is raised after the call-back, in the call that has run it. */
#pragma once

#include <Python.h>
#include <stdbool.h>

/* Takes back a Ctrl-C that no handler has seen yet. Returns whether there was
 * one. Call with the GIL held. */
static inline bool psb_interrupt_take(void)
{
    return PyOS_InterruptOccurred();
}

/* Lets Python see a Ctrl-C that was taken. */
static inline void psb_interrupt_return(bool taken)
{
    if (taken)
        PyErr_SetInterrupt();
}
